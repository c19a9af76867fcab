"""Merging in standard operators: who joins whom, by survivors or in pairs, and the weighted mean."""

import math

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
    likeness = op.MatMul(directions, op.Transpose(survivors, perm=TURNED), name="likeness")
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


def expand_pairing(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PairTokens to slices, one product, and a top-k.

    1. Sets that alternate are slices; where the second has fewer tokens, the first is gathered.
    2. Who stays is chosen by KeepTopK from the negative largest cosine, with its tie rule.
    3. The mean keys are named after `into_NN`: `exporter.lowering.decisions` keeps all from them on fp32.
    """
    pairings = _pairings(graph, artefact)
    for layer, node in pairings:
        _expand(graph, node, into_name(layer), artefact.spec.num_heads)
    return len(pairings)


def _pairings(graph: gs.Graph, artefact: Artefact) -> list[tuple[int, gs.Node]]:
    """Return the markers that pair tokens, each behind its 1-based layer; none where patches have scores."""
    nodes = markers(graph, PAIR_TOKENS)
    layers = artefact.schedule.pruning_layers if nodes else ()
    return list(zip(layers, nodes, strict=True))


def _expand(graph: gs.Graph, node: gs.Node, prefix: str, heads: int) -> None:
    key, sizes = node.inputs[0], node.inputs[1:]
    before, kept_count = node.attrs["num_prefix_tokens"], node.attrs["kept"]
    patches = int(key.shape[-2]) - before
    second = joined_patches(patches, kept_count, before)
    joined, joins = np.array(second), ~np.isin(np.arange(patches), second)
    joining = np.flatnonzero(joins)
    tokens = before + patches
    op = Builder(graph, node, prefix=prefix)

    directions = write_directions(op, key, heads)
    second_set = op.Slice(
        directions, [before + second.start], [tokens], [1], [second.step], name="joined"
    )
    if second.step == 2:
        start = before + 1 - second.start
        first_set = op.Slice(directions, [start], [tokens], [1], [2], name="joining")
    else:
        first_set = op.Gather(directions, before + joining, axis=1, name="joining")
    alike = op.MatMul(first_set, op.Transpose(second_set, perm=TURNED), name="cosine")
    if sizes:
        weight = _weight(op, op.Unsqueeze(sizes[0], [2]))
        of_first = op.Gather(weight, before + joining, axis=1)
        of_second = op.Gather(weight, before + joined, axis=1)
        alike = _weighed(op, alike, of_first, of_second)

    batch = op.Shape(alike, start=0, end=1, name="batch")
    shape = op.Concat(batch, [len(joined)], axis=0)
    keep = op.Expand(joined[None], shape, name="all_joined")
    staying = kept_count - len(joined)
    if staying:
        stay = _staying(op, alike, [key.shape[0], len(joining)], staying)
        keep = op.Concat(op.Gather(joining, stay, axis=0), keep, axis=1, name="kept")

    # The place in the first set of each patch; entries of the second set are overwritten.
    by_patch = np.maximum(joins.cumsum() - 1, 0)
    best = op.ArgMax(alike, axis=2, keepdims=0)
    partners = op.Gather(best, by_patch, axis=1, name="partners")
    places = op.Expand(np.arange(kept_count)[None], op.Shape(keep), name="places")
    partner_places = op.Add(partners, staying)
    into = op.ScatterElements(partner_places, keep, places, axis=1, name="own_places")
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
    pairings = _pairings(graph, artefact)
    for layer, node in pairings:
        _count(graph, node, layer, artefact.spec.num_heads)
    return len(pairings)


def _count(graph: gs.Graph, node: gs.Node, layer: int, heads: int) -> None:
    key, sizes = node.inputs[0], node.inputs[1:]
    prefix, kept_count = node.attrs["num_prefix_tokens"], node.attrs["kept"]
    # Both sets and the prefix tokens left in stand in one order; constants say which is which.
    left_out = int(key.shape[-2]) % 2 if prefix else 0
    before, patches = prefix - left_out, int(key.shape[-2]) - prefix
    second = np.zeros(before + patches, bool)
    second[before:][joined_patches(patches, kept_count, prefix)] = True
    first, slots = ~second, np.arange(len(second))
    first[:before] = False
    staying = kept_count - int(second.sum())
    places = np.where(second, staying + second.cumsum() - 1, 0).astype(np.float32)
    earlier = slots[None] < slots[:, None]

    op = Builder(graph, node, prefix=into_name(layer))
    alike = _cosine(op, key, heads, left_out, prefix)
    if sizes:
        column = op.Unsqueeze(sizes[0], [2])
        even = op.Slice(column, [left_out], [END], [1]) if left_out else column
        weight = _weight(op, even)
        alike = _weighed(op, alike, weight, weight)
    to_second = op.Where(second[None, None], alike, APART, name="others")
    best = op.ReduceMax(to_second, [2], keepdims=1, name="best")
    # Of equally alike partners the first is joined: the least place of them.
    candidates = op.Where(op.Equal(to_second, best), places[None, None], float(kept_count))
    partners = op.ReduceMin(candidates, [2], keepdims=1)

    # A patch stays if few are less alike to their partners: it counts those that go before it.
    likest = op.Transpose(best, perm=TURNED, name="likest")
    less = op.Less(likest, best)
    tied = op.And(op.Equal(likest, best), earlier[None])
    ahead = op.Or(less, tied, name="ahead")
    rank = _count_of(op, op.And(ahead, first[None, None]), "rank")
    few = op.Less(rank, float(staying))
    stays = op.And(few, first[None, :, None], name="stays", out=stays_name(layer))

    place = _count_of(op, op.And(op.Transpose(stays, perm=TURNED), earlier[None]), "place")
    of_going = op.Where(first[None, :, None], partners, places[None, :, None])
    into = op.Where(stays, place, of_going)
    into = op.Slice(op.Squeeze(into, [2]), [before], [END], [1], name="patches")
    into = op.Cast(into, to=onnx.TensorProto.INT64, name="whole")
    keep = node.outputs[0]
    if keep.outputs or any(output is keep for output in graph.outputs):
        node.outputs = node.outputs[:2]  # score and gap have no reader
        survivors = write_survivors(op, stays, patches, kept_count, prefix)
        replace(graph, node, survivors, into)
    else:
        node.outputs = node.outputs[1:2]
        replace(graph, node, into)


def _cosine(
    op: Builder, key: gs.Variable, heads: int, left_out: int, prefix: int
) -> gs.Variable:
    """Write the cosine between the mean keys of all tokens but the first `left_out`: [batch, tokens, tokens].

    Without a mask for a constant TensorRT copies all mean keys once for each token, where none is left out.
    """
    mean = write_mean_key(op, key, heads)
    if left_out:
        mean = op.Slice(mean, [left_out], [END], [1], name="even")
    else:
        is_patch = np.arange(int(key.shape[-2])) >= prefix
        mean = op.Mul(mean, is_patch.astype(np.float32)[None, :, None], name="even")
    squared = op.ReduceSum(op.Mul(mean, mean), [2], keepdims=1)
    scale = op.Div(1.0, op.Sqrt(op.Max(squared, SHORTEST)), name="scale")
    products = op.MatMul(mean, op.Transpose(mean, perm=TURNED), name="products")
    return op.Mul(op.Mul(products, op.Transpose(scale, perm=TURNED)), scale, name="cosine")


def write_survivors(
    op: Builder, stays: gs.Variable, patches: int, kept_count: int, prefix: int
) -> gs.Variable:
    """Write the survivors, [batch, kept]: of the first set those that stay, ascending, then the second set."""
    second = np.array(joined_patches(patches, kept_count, prefix))
    size = op.Concat(op.Shape(stays, start=0, end=1), [len(second)], axis=0)
    joined = op.Expand(second[None], size, name="all_joined")
    if kept_count == len(second):
        return joined
    marks = op.Squeeze(op.Slice(stays, [-patches], [END], [1]), [2])
    # Those that go sort behind all that stay.
    places = op.Where(marks, np.arange(patches)[None], patches)
    outs = f"{op.prefix}/ascending", f"{op.prefix}/unread"
    staying = [kept_count - len(second)]
    first, _ = op.several("TopK", places, staying, outs=outs, axis=1, largest=0)
    return op.Concat(first, joined, axis=1, name="survivors")


def _count_of(op: Builder, marked: gs.Variable, name: str) -> gs.Variable:
    """Write how many are marked in each row, in float32, which is exact here."""
    return op.ReduceSum(op.Cast(marked, to=onnx.TensorProto.FLOAT), [2], keepdims=1, name=name)


def _weight(op: Builder, sizes: gs.Variable) -> gs.Variable:
    """Write the fourth root of each token's size: [batch, tokens, 1]."""
    return op.Sqrt(op.Sqrt(sizes), name="weight")


def _weighed(
    op: Builder, cosine: gs.Variable, first: gs.Variable, second: gs.Variable
) -> gs.Variable:
    """Write (cosine − 1) · the weights of both patches."""
    far = op.Mul(op.Sub(cosine, 1.0), first)
    return op.Mul(far, op.Transpose(second, perm=TURNED), name="alike")


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
