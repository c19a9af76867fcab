"""Pairs in standard operators, set by set: who stays, who joins whom, and the mean of the second set."""

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.tensor_names import Array
from exporter.core.lower.decisions import write_length, write_mean_key
from exporter.core.lower.graph import END, Builder, markers, replace
from exporter.core.lower.markers import (
    KEEP_TOP_K,
    MERGE_TOKENS,
    PAIR_TOKENS,
)
from exporter.core.lower.passes.merging import TRANSPOSED
from exporter.core.lower.passes.selection import prefix_rows, write_taken
from exporter.core.prune.ops.onnx_functions import DOMAIN
from exporter.core.schedule.counts import joined_patches


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
    3. The mean keys are named after `into_NN`: `exporter.core.lower.decisions` keeps all from them on fp32.
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


def _expand(
    graph: gs.Graph, node: gs.Node, sets: Sets, zeros: gs.Variable, heads: int
) -> None:
    """Write who stays, and whom each patch joins; `zeros` are [batch, 1]."""
    key, *sizes = node.inputs
    op = Builder(graph, node, prefix=node.outputs[1].name)
    mean_key = write_mean_key(op, key, heads)
    novelty, partner = _closest(op, mean_key, sizes, sets)
    first = sets.first
    second = np.array(sets.second)
    keep = op.Add(zeros, second[None], name="all_joined")
    if sets.staying:
        places = op(KEEP_TOP_K, novelty, name="stay", domain=DOMAIN, k=sets.staying)
        places.dtype = np.dtype(np.int64)
        staying = op.Gather(first, places, axis=0)
        keep = op.Concat(staying, keep, axis=1, name="kept")

    # The place in the first set of each patch; entries of the second set are overwritten.
    by_patch = np.searchsorted(first[:-1], np.arange(sets.patches))
    partners = op.Gather(partner, by_patch, axis=1, name="partners")
    own_places = op.Add(zeros, np.arange(sets.kept)[None], name="places")
    joins = op.Add(partners, sets.staying)
    into = op.ScatterElements(joins, keep, own_places, axis=1, name="own_places")
    node.outputs = node.outputs[:2]  # score and gap have no reader
    replace(graph, node, keep, into)


def _closest(
    op: Builder, keys: gs.Variable, sizes: list[gs.Variable], sets: Sets
) -> tuple[gs.Variable, gs.Variable]:
    """Write how unlike each patch of the first set is to the one that it would join, and this one's place.

    Both are [batch, first]. The first patch's weight comes last, since it decides nothing about its partner:
    ((1 − c) · b^¼) · a^¼, where (1 − c) · b^¼ is b^¼ − c · b^¼. Lengths and weights are those of all tokens, at
    once: for one image, a node takes longer than what it computes.
    """
    first, second = sets.take(op, keys, sets.prefix)
    transposed = op.Transpose(second, perm=TRANSPOSED)
    products = op.MatMul(first, transposed, name="products")
    inverse = inverse_length(op, keys)
    inverse_first, inverse_second = sets.take(op, inverse, sets.prefix)
    factor = op.Transpose(inverse_second, perm=TRANSPOSED)
    weight: gs.Variable | float = 0.0
    if sizes:
        weights = size_weight(op, sizes[0])
        weight_first, weight_second = sets.take(op, weights, sets.prefix)
        weight = op.Unsqueeze(weight_second, [1])
        factor = op.Mul(factor, weight)
    scaled = op.Mul(products, factor)
    cosine = op.Mul(scaled, inverse_first, name="cosine")
    unlike = op.Sub(weight, cosine, name="unlike")
    outs = f"{op.prefix}/least", f"{op.prefix}/closest"
    least, partner = op.several("TopK", unlike, [1], outs=outs, axis=2, largest=0)
    novelty = op.Squeeze(least, [2], name="novelty")
    if sizes:
        novelty = op.Mul(novelty, weight_first, name="weighed")
    return novelty, op.Squeeze(partner, [2])


def _expand_means(
    graph: gs.Graph, node: gs.Node, sets: Sets, zeros: gs.Variable, keep: gs.Variable
) -> None:
    """Write the tokens that stay as they are, and behind them the means of the second set."""
    tokens, into, *sizes = node.inputs
    merged, merged_sizes = node.outputs
    op = Builder(graph, node, prefix=merged_sizes.name)
    shares, own_shares, totals = _shares(op, into, sizes, sets)
    mean_sizes = op.Squeeze(totals, [2])
    rows = _staying_rows(op, sets, zeros, keep)
    staying_sizes = [] if rows is None else [_sizes_of(op, rows, sizes)]
    all_sizes = op.Concat(*staying_sizes, mean_sizes, axis=1)

    op = Builder(graph, node, prefix=merged.name)
    first, second = sets.take(op, tokens, sets.prefix)
    joined = op.MatMul(shares, first, name="sum")
    means = op.Add(op.Mul(second, own_shares), joined, name="mean")
    staying = []
    if rows is not None:
        count = sets.prefix + sets.staying
        staying.append(write_taken(op, tokens, rows, count, "stay"))
    all_tokens = op.Concat(*staying, means, axis=1)
    replace(graph, node, all_tokens, all_sizes)


def _shares(
    op: Builder, into: gs.Variable, sizes: list[gs.Variable], sets: Sets
) -> tuple[gs.Variable, gs.Variable, gs.Variable]:
    """Write what the means of the second set are made of, a row each.

    The shares of the first set's patches, 0 for one that joins another, [batch, second, first]; the patch's own
    share; and the size of both together, [batch, second, 1].
    """
    partners, _ = sets.take(op, into, 0)
    places = np.arange(sets.staying, sets.kept)[:, None]
    joins = op.Equal(op.Unsqueeze(partners, [1]), places)
    size: gs.Variable | float = 1.0
    own_size: gs.Variable | float = 1.0
    if sizes:
        of_first, of_second = sets.take(op, sizes[0], sets.prefix)
        size = op.Unsqueeze(of_first, [1])
        own_size = op.Unsqueeze(of_second, [2])
    weights = op.Where(joins, size, 0.0)
    totals = op.Add(op.ReduceSum(weights, [2], keepdims=1), own_size)
    shares = op.Div(weights, totals, name="shares")
    own_shares = op.Div(own_size, totals, name="own_share")
    return shares, own_shares, totals


def _sizes_of(op: Builder, rows: gs.Variable, sizes: list[gs.Variable]) -> gs.Variable:
    """Write the sizes of tokens by their rows: 1 where none has merged before."""
    if sizes:
        return op.GatherElements(sizes[0], rows, axis=1)
    return op.Expand(1.0, op.Shape(rows))


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


def inverse_length(op: Builder, keys: gs.Variable) -> gs.Variable:
    """Write one by the length of each mean key: [batch, slots, 1]."""
    return op.Div(1.0, write_length(op, keys), name="scale")


def size_weight(op: Builder, sizes: gs.Variable) -> gs.Variable:
    """Write the fourth root of each token's size: [batch, tokens, 1]."""
    return op.Sqrt(op.Sqrt(sizes), name="weight")
