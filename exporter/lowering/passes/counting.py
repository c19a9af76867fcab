"""Pairs for a GPU: who stays and who joins whom by counts of comparisons, without sorts, gathers and scatters."""

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.decisions import write_mean_key
from exporter.lowering.graph import Builder, markers, replace
from exporter.lowering.markers import PAIR_TOKENS
from exporter.lowering.passes.merging import TRANSPOSED
from exporter.lowering.passes.pairing import END, shortened, size_weight
from exporter.ops.counts import joined_patches
from exporter.ops.merging import PAIR_SCORE
from exporter.schedule.methods import scorer_named
from exporter.tensor_names import Array, into_name, stays_name

# Below any likeness of two patches, however large they are.
APART = -PAIR_SCORE


def count_pairs(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PairTokens for a GPU: one product, and counts in place of sorts, gathers and a scatter.

    1. The product is that of the mean keys, whose lengths divide it afterwards: see `Slots`.
    2. A patch of the first set stays if too few resemble their partners less, or as little and come before it;
       its place is the number of those before it that stay. These are sums of comparisons, in float32.
    3. Who stays is `keep_NN/stays`. Survivors are written where they have a reader, as with rotary positions;
       variants derive them elsewhere.
    """
    nodes = markers(graph, PAIR_TOKENS)
    layers = artefact.schedule.pruning_layers if nodes else ()
    for layer, node in zip(layers, nodes, strict=True):
        _count(graph, node, layer, artefact)
    return len(nodes)


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
        weight = size_weight(op, _without_first(op, column, slots))
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
    likest = op.Transpose(best, perm=TRANSPOSED, name="likest")
    less = op.Less(likest, best)
    tied = op.And(op.Equal(likest, best), earlier[None])
    ahead = op.Or(less, tied, name="ahead")
    rank = _count_of(op, op.And(ahead, first[None, None]), "rank")
    few = op.Less(rank, float(staying))
    stays = op.And(few, first[None, :, None], name="stays", out=name)
    before = op.And(op.Transpose(stays, perm=TRANSPOSED), earlier[None])
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
    of_rows = shortened(op, rows)
    of_columns = of_rows if columns is rows else shortened(op, columns)
    products = op.MatMul(rows, op.Transpose(columns, perm=TRANSPOSED), name="products")
    return op.Mul(
        op.Mul(products, op.Transpose(of_columns, perm=TRANSPOSED)),
        of_rows,
        name="cosine",
    )


def _without_first(op: Builder, tensor: gs.Variable, slots: Slots) -> gs.Variable:
    if not slots.left_out:
        return tensor
    return op.Slice(tensor, [slots.left_out], [END], [1], name="even")


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


def _weighed(
    op: Builder, cosine: gs.Variable, first: gs.Variable, second: gs.Variable
) -> gs.Variable:
    """Write (cosine − 1) · the weights of both patches."""
    far = op.Mul(op.Sub(cosine, 1.0), first)
    return op.Mul(far, op.Transpose(second, perm=TRANSPOSED), name="alike")
