"""Merging in standard operators: who joins whom, by survivors or in pairs, and the weighted mean."""

import math
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.decisions import SHORTEST, write_directions, write_mean_key
from exporter.lowering.graph import Builder, markers, replace
from exporter.lowering.markers import (
    KEEP_TOP_K,
    MERGE_INTO,
    MERGE_TOKENS,
    PAIR_TOKENS,
    TAKE_TOKENS,
)
from exporter.lowering.passes.selection import behind_prefix, prefix_rows
from exporter.ops.counts import joined_patches
from exporter.ops.merging import PAIR_SCORE
from exporter.ops.onnx_functions import DOMAIN
from exporter.schedule.methods import scorer_named
from exporter.tensor_names import Array, into_name, stays_name

# Above any cosine, so that a survivor joins itself.
ITSELF = 2.0
# Below any likeness of two patches, however large they are.
APART = -PAIR_SCORE
TURNED = [0, 2, 1]
END = int(np.iinfo(np.int64).max)


def expand_merging(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand MergeInto to a product and ArgMax, and MergeTokens to a product with the weights of the mean.

    1. Both products cover all tokens. Removing and restoring prefix tokens would copy the patches; instead their
       rows are not read in the first product, and take one token each in the second.
    2. The weights hold the size of each token in the row of the survivor it joins. A sum by ScatterElements takes
       twice the time on a CPU.
    3. `exporter.lowering.decisions` finds all nodes but the last product through their tensors and keeps them fp32.
    """
    choosing, merging = markers(graph, MERGE_INTO), markers(graph, MERGE_TOKENS)
    for node in choosing:
        _expand_merge_into(graph, node, artefact.spec.num_heads)
    prefixes: gs.Variable | None = None
    for node in merging:
        rows, prefix = node.inputs[1], node.attrs["num_prefix_tokens"]
        if prefix:
            if prefixes is None:
                op = Builder(graph, node, prefix="merging/prefix")
                prefixes = prefix_rows(op, rows, prefix)
            op = Builder(graph, node, prefix=f"{rows.name}/rows")
            rows = behind_prefix(op, rows, prefixes, prefix)
        largest = artefact.spec.num_patches - node.attrs["kept"] + 1
        _expand_merge_tokens(graph, node, rows, largest)
    return len(choosing) + len(merging)


def _expand_merge_into(graph: gs.Graph, node: gs.Node, heads: int) -> None:
    """Write ArgMax over survivors of the cosine between mean keys."""
    key, keep = node.inputs
    prefix, count = node.attrs["num_prefix_tokens"], int(key.shape[-2])
    by_head = len(key.shape) == 4
    channels = int(key.shape[-1]) // (1 if by_head else heads)
    op = Builder(graph, node, prefix=node.outputs[0].name)
    directions = write_directions(op, key, heads)
    directions.shape = [key.shape[0], count, channels]
    rows = op.Add(keep, prefix, name="rows")
    survivors = op(
        TAKE_TOKENS,
        directions,
        rows,
        name="survivors",
        domain=DOMAIN,
        shape=[key.shape[0], keep.shape[1], channels],
        num_prefix_tokens=0,
    )
    likeness = op.MatMul(
        directions, op.Transpose(survivors, perm=TURNED), name="likeness"
    )
    itself = op.Equal(op.Unsqueeze(rows, [1]), np.arange(count)[:, None])
    places = op.ArgMax(op.Where(itself, ITSELF, likeness), axis=2, keepdims=0)
    node.outputs = [node.outputs[0]]  # the gap has no reader
    replace(graph, node, op.Slice(places, [prefix], [count], [1], name="patches"))


def _expand_merge_tokens(
    graph: gs.Graph, node: gs.Node, rows: gs.Variable, largest: int
) -> None:
    """Write weights · tokens / total; row j of the weights holds the sizes of the tokens that join j.

    A division after the product is part of it on a GPU. Weights and totals, of `largest` at most, are scaled by a
    power of two, which changes no bit: no sum is larger than the largest token, which fp16 holds.
    """
    tokens, sizes = node.inputs[0], node.inputs[2:]
    merged, merged_sizes = node.outputs
    width = node.attrs["num_prefix_tokens"] + node.attrs["kept"]
    op = Builder(graph, node, prefix=merged_sizes.name)
    joins = op.Equal(op.Unsqueeze(rows, [1]), np.arange(width)[:, None])
    weights = op.Cast(joins, to=onnx.TensorProto.FLOAT)
    if sizes:
        weights = op.Mul(weights, op.Unsqueeze(sizes[0], [1]))
    total = op.ReduceSum(weights, [2], keepdims=1)
    op.Squeeze(total, [2], name="flat").inputs[0].outputs = [merged_sizes]
    scale = 2.0 ** -math.ceil(math.log2(largest))
    shares = op.Mul(weights, scale, name="shares")
    scaled = op.Mul(total, scale, name="total")
    node.outputs = [merged]
    op = Builder(graph, node, prefix=merged.name)
    summed = op.MatMul(shares, tokens, name="sum")
    replace(graph, node, op.Div(summed, scaled, name="mean"))


@dataclass(frozen=True)
class Sets:
    """The two sets of a layer's patches behind `prefix` tokens; `kept` are left, with all of the second set."""

    prefix: int
    patches: int
    kept: int
    second: range

    @classmethod
    def of(cls, node: gs.Node) -> "Sets":
        """Return the sets of a marker that pairs tokens."""
        prefix, kept = node.attrs["num_prefix_tokens"], node.attrs["kept"]
        patches = int(node.inputs[0].shape[-2]) - prefix
        return cls(prefix, patches, kept, joined_patches(patches, kept, prefix))

    @property
    def first(self) -> Array:
        """The patches of the first set."""
        return np.setdiff1d(np.arange(self.patches), self.second)

    @property
    def staying(self) -> int:
        """How many patches of the first set stay."""
        return self.kept - len(self.second)

    def take(
        self, op: Builder, rows: gs.Variable, before: int
    ) -> tuple[gs.Variable, gs.Variable]:
        """Write the rows of each set, of [batch, before + patches, ...]: slices, where the sets alternate."""
        start, step = before + self.second.start, self.second.step
        second = op.Slice(rows, [start], [END], [1], [step], name="of_second")
        if step > 2:
            first = op.Gather(rows, before + self.first, axis=1, name="of_first")
        else:
            start = before + 1 - self.second.start
            first = op.Slice(rows, [start], [END], [1], [step], name="of_first")
        return first, second


def expand_pairing(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PairTokens to slices, one product, and a top-k, and MergeTokens behind it to a product of the sets.

    1. Sets that alternate are slices; where the second has fewer tokens, the first is gathered.
    2. Who stays is chosen by KeepTopK from the negative largest cosine, with its tie rule.
    3. The mean keys are named after `into_NN`: `exporter.lowering.decisions` keeps all from them on fp32.
    4. Tokens that stay are gathered, and the second set alone is averaged: `expand_merging` has a product with the
       rows of all survivors and the columns of all tokens.
    """
    zeros: gs.Variable | None = None
    pairing = markers(graph, PAIR_TOKENS)
    for node in pairing:
        sets = Sets.of(node)
        if zeros is None:
            op = Builder(graph, node, prefix="pairing")
            zeros = prefix_rows(op, node.inputs[0], 1)
        keep, into = node.outputs[:2]
        means = [reader for reader in into.outputs if reader.op == MERGE_TOKENS]
        _expand(graph, node, sets, zeros, artefact.spec.num_heads)
        for mean in means:
            _expand_means(graph, mean, sets, zeros, keep)
    return len(pairing)


def _pairings(graph: gs.Graph, artefact: Artefact) -> list[tuple[int, gs.Node]]:
    """Return the markers that pair tokens, each behind its 1-based layer; none where patches have scores."""
    nodes = markers(graph, PAIR_TOKENS)
    layers = artefact.schedule.pruning_layers if nodes else ()
    return list(zip(layers, nodes, strict=True))


def _expand(
    graph: gs.Graph, node: gs.Node, sets: Sets, zeros: gs.Variable, heads: int
) -> None:
    """Write who stays, and whom each patch joins; `zeros` are [batch, 1]."""
    key, sizes = node.inputs[0], node.inputs[1:]
    op = Builder(graph, node, prefix=node.outputs[1].name)
    novelty, partner = _closest(op, write_mean_key(op, key, heads), sizes, sets)
    first = sets.first
    keep = op.Add(zeros, np.array(sets.second)[None], name="all_joined")
    if sets.staying:
        stay = op(KEEP_TOP_K, novelty, name="stay", domain=DOMAIN, k=sets.staying)
        stay.dtype = np.dtype(np.int64)
        keep = op.Concat(op.Gather(first, stay, axis=0), keep, axis=1, name="kept")

    # The place in the first set of each patch; entries of the second set are overwritten.
    by_patch = np.searchsorted(first[:-1], np.arange(sets.patches))
    partners = op.Gather(partner, by_patch, axis=1, name="partners")
    places = op.Add(zeros, np.arange(sets.kept)[None], name="places")
    partner_places = op.Add(partners, sets.staying)
    into = op.ScatterElements(partner_places, keep, places, axis=1, name="own_places")
    node.outputs = node.outputs[:2]  # score and gap have no reader
    replace(graph, node, keep, into)


def _closest(
    op: Builder, keys: gs.Variable, sizes: list[gs.Variable], sets: Sets
) -> tuple[gs.Variable, gs.Variable]:
    """Write how unlike each patch of the first set is to the one that it would join, and this one's place.

    Both are [batch, first]. The first patch's weight comes last, since it decides nothing about its partner:
    ((1 − c) · b^¼) · a^¼, where (1 − c) · b^¼ is b^¼ − c · b^¼.
    """
    first, second = sets.take(op, keys, sets.prefix)
    products = op.MatMul(first, op.Transpose(second, perm=TURNED), name="products")
    factor = op.Transpose(_shortened(op, second), perm=TURNED)
    weight: gs.Variable | float = 0.0
    if sizes:
        of_first, of_second = sets.take(op, sizes[0], sets.prefix)
        weight = op.Unsqueeze(_weight(op, of_second), [1])
        factor = op.Mul(factor, weight)
    cosine = op.Mul(op.Mul(products, factor), _shortened(op, first), name="cosine")
    unlike = op.Sub(weight, cosine, name="unlike")
    outs = f"{op.prefix}/least", f"{op.prefix}/closest"
    least, partner = op.several("TopK", unlike, [1], outs=outs, axis=2, largest=0)
    novelty = op.Squeeze(least, [2], name="novelty")
    if sizes:
        novelty = op.Mul(novelty, _weight(op, of_first), name="weighed")
    return novelty, op.Squeeze(partner, [2])


def _expand_means(
    graph: gs.Graph, node: gs.Node, sets: Sets, zeros: gs.Variable, keep: gs.Variable
) -> None:
    """Write the tokens that stay as they are, and behind them the means of the second set.

    Row j of the shares holds those of the first set's patches that join patch j.
    """
    tokens, into, *sizes = node.inputs
    merged, merged_sizes = node.outputs
    op = Builder(graph, node, prefix=merged_sizes.name)
    partners, _ = sets.take(op, into, 0)
    places = np.arange(sets.staying, sets.kept)[:, None]
    joins = op.Equal(op.Unsqueeze(partners, [1]), places)
    weights = op.Cast(joins, to=onnx.TensorProto.FLOAT)
    own: gs.Variable | float = 1.0
    if sizes:
        of_first, of_second = sets.take(op, sizes[0], sets.prefix)
        weights = op.Mul(weights, op.Unsqueeze(of_first, [1]))
        own = op.Unsqueeze(of_second, [2])
    total = op.Add(op.ReduceSum(weights, [2], keepdims=1), own)
    shares = op.Div(weights, total, name="shares")
    own_share = op.Div(own, total, name="own_share")
    all_sizes = [op.Squeeze(total, [2])]
    rows = _staying_rows(op, sets, zeros, keep)
    if rows is not None and sizes:
        all_sizes.insert(0, op.GatherElements(sizes[0], rows, axis=1))
    elif rows is not None:
        all_sizes.insert(0, op.Expand(1.0, op.Shape(rows)))
    op.Concat(*all_sizes, axis=1).inputs[0].outputs = [merged_sizes]

    node.outputs = [merged]
    op = Builder(graph, node, prefix=merged.name)
    first, second = sets.take(op, tokens, sets.prefix)
    joined = op.MatMul(shares, first, name="sum")
    all_tokens = [op.Add(op.Mul(second, own_share), joined, name="mean")]
    if rows is not None:
        batch, _, width = tokens.shape
        stay = op(
            TAKE_TOKENS,
            tokens,
            rows,
            name="stay",
            domain=DOMAIN,
            shape=[batch, sets.prefix + sets.staying, width],
            num_prefix_tokens=0,
        )
        all_tokens.insert(0, stay)
    replace(graph, node, op.Concat(*all_tokens, axis=1))


def _staying_rows(
    op: Builder, sets: Sets, zeros: gs.Variable, keep: gs.Variable
) -> gs.Variable | None:
    """Write the rows of prefix tokens and of the first set's patches that stay: [batch, rows]; None of none."""
    parts = []
    if sets.prefix:
        prefixes = np.arange(sets.prefix)[None]
        parts.append(zeros if sets.prefix == 1 else op.Add(zeros, prefixes))
    if sets.staying:
        stay = op.Slice(keep, [0], [sets.staying], [1])
        parts.append(op.Add(stay, sets.prefix))
    return op.Concat(*parts, axis=1, name="rows") if parts else None


def count_pairs(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PairTokens for a GPU: one product, and counts in place of sorts, gathers and a scatter.

    1. The product is that of the mean keys, whose lengths divide it afterwards: see `Slots`.
    2. A patch of the first set stays if too few resemble their partners less, or as little and come before it;
       its place is the number of those before it that stay. These are sums of comparisons, in float32.
    3. Who stays is `keep_NN/stays`. Survivors are written where they have a reader, as with rotary positions;
       variants derive them elsewhere.
    """
    pairings = _pairings(graph, artefact)
    for layer, node in pairings:
        _count(graph, node, layer, artefact)
    return len(pairings)


@dataclass(frozen=True)
class Slots:
    """The tokens among which pairs are counted, in one order; `first` and `second` mark those of each set.

    `positions` are those of the patches; prefix tokens have negative ones.

    They are an even number: the first token, a prefix token, is `left_out` of an odd one. TensorRT copies other
    operands to pad them. The first set is compared with the second alone where both have an even number of slots
    and take turns, and the keys are `tokens`: of the mean of heads it copies each set. Elsewhere all are compared
    with all, and constants say which is which.
    """

    left_out: int
    positions: Array
    first: Array
    second: Array
    tokens: bool

    @classmethod
    def of(cls, patches: int, kept_count: int, prefix: int, *, tokens: bool) -> "Slots":
        """Return the slots of a layer that keeps so many of its patches."""
        left_out = (prefix + patches) % 2 if prefix else 0
        positions = np.arange(left_out - prefix, patches)
        second = np.isin(positions, joined_patches(patches, kept_count, prefix))
        first = (positions >= 0) & ~second
        return cls(left_out, positions, first, second, tokens)

    @property
    def rows(self) -> slice:
        """The slots that are compared."""
        return slice(1 - self._turn, None, 2) if self._take_turns else slice(None)

    @property
    def columns(self) -> slice:
        """The slots that they are compared with."""
        return slice(self._turn, None, 2) if self._take_turns else slice(None)

    @property
    def _turn(self) -> int:
        return int(self.second.argmax()) % 2

    @property
    def _take_turns(self) -> bool:
        turn = self._turn
        alternate = self.second[turn::2].all() and not self.second[1 - turn :: 2].any()
        return bool(self.tokens and alternate) and len(self.second) % 4 == 0

    def take(
        self, op: Builder, tensor: gs.Variable, part: slice, width: int
    ) -> gs.Variable:
        """Write the slots of `rows` or `columns` of [batch, slots, width]: a view, as TensorRT reads it."""
        if part.step is None:
            return tensor
        by_two = op.Reshape(tensor, [0, len(self.second) // 2, 2 * width])
        start = part.start * width
        return op.Slice(by_two, [start], [start + width], [2])


def _count(graph: gs.Graph, node: gs.Node, layer: int, artefact: Artefact) -> None:
    key, sizes = node.inputs[0], node.inputs[1:]
    prefix, kept_count = node.attrs["num_prefix_tokens"], node.attrs["kept"]
    patches = int(key.shape[-2]) - prefix
    tokens = scorer_named(artefact.schedule.scorer).by_tokens
    slots = Slots.of(patches, kept_count, prefix, tokens=tokens)
    staying = kept_count - int(slots.second.sum())
    own_places = np.where(slots.second, staying + slots.second.cumsum() - 1, 0)
    own_places = own_places.astype(np.float32)

    op = Builder(graph, node, prefix=into_name(layer))
    alike = _cosine(op, key, artefact.spec.num_heads, slots, prefix)
    if sizes:
        column = op.Unsqueeze(sizes[0], [2])
        weight = _weight(op, _without_first(op, column, slots))
        of_first, of_second = (
            slots.take(op, weight, part, 1) for part in (slots.rows, slots.columns)
        )
        alike = _weighed(op, alike, of_first, of_second)
    to_second = alike
    is_second = slots.second[slots.columns]
    if not is_second.all():
        to_second = op.Where(is_second[None, None], alike, APART, name="others")
    best = op.ReduceMax(to_second, [2], keepdims=1, name="best")
    # Of equally alike partners the first is joined: the least place of them.
    candidates = op.Where(
        op.Equal(to_second, best),
        own_places[slots.columns][None, None],
        float(kept_count),
    )
    partners = op.ReduceMin(candidates, [2], keepdims=1)
    stays, place = _staying_of(op, best, slots, staying, stays_name(layer))

    joins = op.Where(stays, place, partners)
    # Slots of the second set have their own places.
    grid = (1, len(slots.first[slots.rows]), -1)
    into = op.Where(slots.first.reshape(grid), joins, own_places.reshape(grid))
    into = op.Reshape(into, [0, len(slots.first)], name="by_slot")
    into = op.Slice(into, [prefix - slots.left_out], [END], [1], name="patches")
    into = op.Cast(into, to=onnx.TensorProto.INT64, name="whole")
    keep = node.outputs[0]
    if keep.outputs or any(output is keep for output in graph.outputs):
        node.outputs = node.outputs[:2]  # score and gap have no reader
        survivors = write_survivors(op, stays, slots, kept_count)
        replace(graph, node, survivors, into)
    else:
        node.outputs = node.outputs[1:2]
        replace(graph, node, into)


def _staying_of(
    op: Builder, best: gs.Variable, slots: Slots, staying: int, name: str
) -> tuple[gs.Variable, gs.Variable]:
    """Write which rows stay, named `name`, and the place of each among them; both [batch, rows, 1]."""
    first = slots.first[slots.rows]
    order = np.arange(len(first))
    earlier = order[None] < order[:, None]
    likest = op.Transpose(best, perm=TURNED, name="likest")
    less = op.Less(likest, best)
    tied = op.And(op.Equal(likest, best), earlier[None])
    ahead = op.Or(less, tied, name="ahead")
    rank = _count_of(op, op.And(ahead, first[None, None]), "rank")
    few = op.Less(rank, float(staying))
    stays = op.And(few, first[None, :, None], name="stays", out=name)
    before = op.And(op.Transpose(stays, perm=TURNED), earlier[None])
    return stays, _count_of(op, before, "place")


def _cosine(
    op: Builder, key: gs.Variable, heads: int, slots: Slots, prefix: int
) -> gs.Variable:
    """Write the cosine between the mean keys of rows and columns: [batch, rows, columns].

    Of all with all, where none is left out, TensorRT copies all mean keys once for each token without a mask.
    """
    mean = _without_first(op, write_mean_key(op, key, heads), slots)
    if slots.rows == slots.columns and not slots.left_out:
        is_patch = np.arange(int(key.shape[-2])) >= prefix
        mean = op.Mul(mean, is_patch.astype(np.float32)[None, :, None], name="even")
    width = int(key.shape[-1]) // (1 if len(key.shape) == 4 else heads)
    rows = slots.take(op, mean, slots.rows, width)
    columns = (
        mean
        if slots.rows == slots.columns
        else slots.take(op, mean, slots.columns, width)
    )
    of_rows = _shortened(op, rows)
    of_columns = of_rows if columns is rows else _shortened(op, columns)
    products = op.MatMul(rows, op.Transpose(columns, perm=TURNED), name="products")
    return op.Mul(
        op.Mul(products, op.Transpose(of_columns, perm=TURNED)), of_rows, name="cosine"
    )


def _without_first(op: Builder, tensor: gs.Variable, slots: Slots) -> gs.Variable:
    if not slots.left_out:
        return tensor
    return op.Slice(tensor, [slots.left_out], [END], [1], name="even")


def _shortened(op: Builder, keys: gs.Variable) -> gs.Variable:
    """Write what each mean key is divided by, as a factor: [batch, slots, 1]."""
    squared = op.ReduceSum(op.Mul(keys, keys), [2], keepdims=1)
    return op.Div(1.0, op.Sqrt(op.Max(squared, SHORTEST)), name="scale")


def write_survivors(
    op: Builder, stays: gs.Variable, slots: Slots, kept_count: int
) -> gs.Variable:
    """Write the survivors, [batch, kept]: of the first set those that stay, ascending, then the second set."""
    second = slots.positions[slots.second]
    size = op.Concat(op.Shape(stays, start=0, end=1), [len(second)], axis=0)
    joined = op.Expand(second[None], size, name="all_joined")
    if kept_count == len(second):
        return joined
    positions = slots.positions[slots.rows]
    # Those that go sort behind all that stay.
    behind = int(slots.positions[-1]) + 1
    places = op.Where(op.Squeeze(stays, [2]), positions[None], behind)
    outs = f"{op.prefix}/ascending", f"{op.prefix}/unread"
    staying = [kept_count - len(second)]
    first, _ = op.several("TopK", places, staying, outs=outs, axis=1, largest=0)
    return op.Concat(first, joined, axis=1, name="survivors")


def _count_of(op: Builder, marked: gs.Variable, name: str) -> gs.Variable:
    """Write how many are marked in each row, in float32, which is exact here."""
    return op.ReduceSum(
        op.Cast(marked, to=onnx.TensorProto.FLOAT), [2], keepdims=1, name=name
    )


def _weight(op: Builder, sizes: gs.Variable) -> gs.Variable:
    """Write the fourth root of each token's size: [batch, tokens, 1]."""
    return op.Sqrt(op.Sqrt(sizes), name="weight")


def _weighed(
    op: Builder, cosine: gs.Variable, first: gs.Variable, second: gs.Variable
) -> gs.Variable:
    """Write (cosine − 1) · the weights of both patches."""
    far = op.Mul(op.Sub(cosine, 1.0), first)
    return op.Mul(far, op.Transpose(second, perm=TURNED), name="alike")
