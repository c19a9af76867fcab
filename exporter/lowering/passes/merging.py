"""Merging in standard operators: who joins whom, by survivors or in pairs, and the weighted mean."""

from collections.abc import Sequence

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
from exporter.tensor_names import into_name, stays_name

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
    2. The weights hold a 1 for each token, in the row of the survivor it joins. A sum by ScatterElements takes
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
                prefixes = prefix_rows(
                    Builder(graph, node, prefix="merging/prefix"), rows, prefix
                )
            rows = behind_prefix(
                Builder(graph, node, prefix=f"{rows.name}/rows"), rows, prefixes, prefix
            )
        _expand_merge_tokens(graph, node, rows)
    return len(choosing) + len(merging)


def _expand_merge_into(graph: gs.Graph, node: gs.Node, heads: int) -> None:
    """Write ArgMax over survivors of the cosine between mean keys."""
    (key, keep), prefix = node.inputs, node.attrs["num_prefix_tokens"]
    count, channels = (
        int(key.shape[-2]),
        int(key.shape[-1]) // (heads if len(key.shape) == 3 else 1),
    )
    op = Builder(graph, node, prefix=node.outputs[0].name)
    directions = write_directions(op, key, heads)
    directions.shape = [key.shape[0], count, channels]
    rows = op.Add(keep, prefix, name="rows")
    shape = [key.shape[0], keep.shape[1], channels]
    survivors = op(
        TAKE_TOKENS,
        directions,
        rows,
        name="survivors",
        domain=DOMAIN,
        shape=shape,
        num_prefix_tokens=0,
    )
    likeness = op.MatMul(directions, op.Transpose(survivors, perm=TURNED), name="likeness")
    itself = op.Equal(op.Unsqueeze(rows, [1]), np.arange(count)[:, None])
    places = op.ArgMax(op.Where(itself, ITSELF, likeness), axis=2, keepdims=0)
    node.outputs = [node.outputs[0]]
    replace(graph, node, op.Slice(places, [prefix], [count], [1], name="patches"))


def _expand_merge_tokens(graph: gs.Graph, node: gs.Node, rows: gs.Variable) -> None:
    """Write weights · tokens; row j of the weights holds the sizes of the tokens that join j, normalised."""
    tokens, _, *sizes = node.inputs
    merged, merged_sizes = node.outputs
    width = node.attrs["num_prefix_tokens"] + node.attrs["kept"]
    op = Builder(graph, node, prefix=merged_sizes.name)
    joins = op.Equal(op.Unsqueeze(rows, [1]), np.arange(width)[:, None])
    weights = op.Cast(joins, to=onnx.TensorProto.FLOAT)
    for each in sizes:
        weights = op.Mul(weights, op.Unsqueeze(each, [1]))
    total = op.ReduceSum(weights, [2], keepdims=1)
    shares = op.Div(weights, total, name="shares")
    op.Squeeze(total, [2], name="flat").inputs[0].outputs = [merged_sizes]
    node.outputs = [merged]
    mean = Builder(graph, node, prefix=merged.name).MatMul(shares, tokens, name="mean")
    replace(graph, node, mean)


def expand_pairing(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PairTokens to slices, one product, and a top-k.

    1. Sets that alternate are slices; where the second has fewer tokens, the first is gathered.
    2. Who stays is chosen by KeepTopK from the negative largest cosine, with its tie rule.
    3. The mean keys are named after `into_NN`: `exporter.lowering.decisions` keeps all from them on fp32.
    """
    paired = markers(graph, PAIR_TOKENS)
    for layer, node in zip(
        artefact.schedule.pruning_layers if paired else (), paired, strict=True
    ):
        _expand(graph, node, into_name(layer), artefact.spec.num_heads)
    return len(paired)


def _expand(graph: gs.Graph, node: gs.Node, prefix: str, heads: int) -> None:
    (key, *sizes), before, kept = (
        node.inputs,
        node.attrs["num_prefix_tokens"],
        node.attrs["kept"],
    )
    patches = int(key.shape[-2]) - before
    second = joined_patches(patches, kept, before)
    joined, joins = np.array(second), ~np.isin(np.arange(patches), second)
    joining = np.flatnonzero(joins)
    op = Builder(graph, node, prefix=prefix)
    directions = write_directions(op, key, heads)
    others = op.Slice(
        directions,
        [before + second.start],
        [before + patches],
        [1],
        [second.step],
        name="joined",
    )
    if second.step == 2:
        start = before + 1 - second.start
        ones = op.Slice(directions, [start], [before + patches], [1], [2], name="joining")
    else:
        ones = op.Gather(directions, before + joining, axis=1, name="joining")
    alike = op.MatMul(ones, op.Transpose(others, perm=TURNED), name="cosine")
    for weight in _weights(op, sizes):
        first = op.Gather(weight, before + joining, axis=1)
        alike = _weighed(op, alike, first, op.Gather(weight, before + joined, axis=1))
    batch = op.Shape(alike, start=0, end=1, name="batch")
    keep = op.Expand(joined[None], op.Concat(batch, [len(joined)], axis=0), name="all_joined")
    staying = kept - len(joined)
    if staying:
        stay = _staying(op, alike, [key.shape[0], len(joining)], staying)
        keep = op.Concat(op.Gather(joining, stay, axis=0), keep, axis=1, name="kept")
    # The place in the first set of each patch; entries of the second set are overwritten.
    by_patch = np.maximum(joins.cumsum() - 1, 0)
    partners = op.Gather(
        op.ArgMax(alike, axis=2, keepdims=0), by_patch, axis=1, name="partners"
    )
    places = op.Expand(np.arange(kept)[None], op.Shape(keep), name="places")
    into = op.ScatterElements(
        op.Add(partners, staying), keep, places, axis=1, name="own_places"
    )
    node.outputs = node.outputs[:2]  # score and gap have no reader
    replace(graph, node, keep, into)


def count_pairs(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PairTokens for a GPU: one product of all tokens, and counts in place of sorts, gathers and a scatter.

    1. The product is that of the mean keys, whose lengths divide it afterwards. It covers an even number of tokens,
       since TensorRT copies others to pad them: the first one is left out of an odd number.
    2. A patch of the first set stays if too few resemble their partners less, or as little and come before it;
       its place is the number of those before it that stay. These are sums of comparisons, in float32.
    3. Who stays is `keep_NN/stays`. Survivors are written where they have a reader, as with rotary positions;
       variants derive them elsewhere.
    """
    paired = markers(graph, PAIR_TOKENS)
    for layer, node in zip(
        artefact.schedule.pruning_layers if paired else (), paired, strict=True
    ):
        _count(graph, node, layer, artefact.spec.num_heads)
    return len(paired)


def _count(graph: gs.Graph, node: gs.Node, layer: int, heads: int) -> None:
    (key, *sizes), prefix, kept = (
        node.inputs,
        node.attrs["num_prefix_tokens"],
        node.attrs["kept"],
    )
    left_out = int(key.shape[-2]) % 2 if prefix else 0
    before, patches = prefix - left_out, int(key.shape[-2]) - prefix
    second = np.zeros(before + patches, bool)
    second[before:][joined_patches(patches, kept, prefix)] = True
    first, slots = ~second, np.arange(len(second))
    first[:before] = False
    staying = kept - int(second.sum())
    places = np.where(second, staying + second.cumsum() - 1, 0).astype(np.float32)
    earlier = slots[None] < slots[:, None]

    op = Builder(graph, node, prefix=into_name(layer))
    alike = _cosine(op, key, heads, left_out)
    for weight in _weights(op, sizes):
        even = op.Slice(weight, [left_out], [END], [1]) if left_out else weight
        alike = _weighed(op, alike, even, even)
    others = op.Where(second[None, None], alike, APART, name="others")
    best = op.ReduceMax(others, [2], keepdims=1, name="best")
    partners = op.ReduceMin(
        op.Where(op.Equal(others, best), places[None, None], float(kept)), [2], keepdims=1
    )
    likest = op.Transpose(best, perm=TURNED, name="likest")
    ahead = op.Or(
        op.Less(likest, best), op.And(op.Equal(likest, best), earlier[None]), name="ahead"
    )
    rank = _count_of(op, op.And(ahead, first[None, None]), "rank")
    stays = op.And(
        op.Less(rank, float(staying)), first[None, :, None], name="stays", out=stays_name(layer)
    )
    place = _count_of(op, op.And(op.Transpose(stays, perm=TURNED), earlier[None]), "place")
    into = op.Where(
        stays, place, op.Where(first[None, :, None], partners, places[None, :, None])
    )
    into = op.Slice(op.Squeeze(into, [2]), [before], [END], [1], name="patches")
    whole = op.Cast(into, to=onnx.TensorProto.INT64, name="whole")
    keep = node.outputs[0]
    if keep.outputs or any(each is keep for each in graph.outputs):
        node.outputs = node.outputs[:2]  # score and gap have no reader
        replace(graph, node, write_survivors(op, stays, patches, kept, prefix), whole)
    else:
        node.outputs = node.outputs[1:2]
        replace(graph, node, whole)


def _cosine(op: Builder, key: gs.Variable, heads: int, left_out: int) -> gs.Variable:
    """Write the cosine between the mean keys of all tokens but the first `left_out`: [batch, tokens, tokens]."""
    mean = write_mean_key(op, key, heads)
    if left_out:
        mean = op.Slice(mean, [left_out], [END], [1], name="even")
    squared = op.ReduceSum(op.Mul(mean, mean), [2], keepdims=1)
    scale = op.Div(1.0, op.Sqrt(op.Max(squared, SHORTEST)), name="scale")
    products = op.MatMul(mean, op.Transpose(mean, perm=TURNED), name="products")
    return op.Mul(op.Mul(products, op.Transpose(scale, perm=TURNED)), scale, name="cosine")


def write_survivors(
    op: Builder, stays: gs.Variable, patches: int, kept: int, prefix: int
) -> gs.Variable:
    """Write the survivors, [batch, kept]: of the first set those that stay, ascending, then the second set."""
    second = np.array(joined_patches(patches, kept, prefix))
    size = op.Concat(op.Shape(stays, start=0, end=1), [len(second)], axis=0)
    joined = op.Expand(second[None], size, name="all_joined")
    if kept == len(second):
        return joined
    marks = op.Squeeze(op.Slice(stays, [-patches], [END], [1]), [2])
    places = op.Where(marks, np.arange(patches)[None], patches)
    outs = f"{op.prefix}/ascending", f"{op.prefix}/unread"
    first, _ = op.several("TopK", places, [kept - len(second)], outs=outs, axis=1, largest=0)
    return op.Concat(first, joined, axis=1, name="survivors")


def _count_of(op: Builder, marked: gs.Variable, name: str) -> gs.Variable:
    """Write how many are marked in each row, in float32, which is exact here."""
    return op.ReduceSum(op.Cast(marked, to=onnx.TensorProto.FLOAT), [2], keepdims=1, name=name)


def _weights(op: Builder, sizes: Sequence[gs.Variable]) -> list[gs.Variable]:
    """Write the fourth root of each token's size, where sizes count: [batch, tokens]."""
    return [op.Sqrt(op.Sqrt(each), name="weight") for each in sizes]


def _weighed(
    op: Builder, cosine: gs.Variable, first: gs.Variable, second: gs.Variable
) -> gs.Variable:
    """Write (cosine − 1) · the weights of both patches."""
    far = op.Mul(op.Sub(cosine, 1.0), op.Unsqueeze(first, [2]))
    return op.Mul(far, op.Unsqueeze(second, [1]), name="alike")


def _staying(
    op: Builder, alike: gs.Variable, shape: list[int | str], staying: int
) -> gs.Variable:
    """Write a marker for the patches of the first set that are least alike to any of the second, ascending."""
    novelty = op.Neg(op.ReduceMax(alike, [2], keepdims=0), name="novelty", shape=shape)
    stay = op(
        KEEP_TOP_K, novelty, name="stay", shape=[shape[0], staying], domain=DOMAIN, k=staying
    )
    stay.dtype = np.dtype(np.int64)
    return stay
