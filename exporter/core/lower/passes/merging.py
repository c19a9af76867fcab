"""Merging in standard operators: which survivor each token joins, and the weighted mean."""

import math

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.lower.decisions import mean_key_channels, write_directions
from exporter.core.lower.graph import Builder, markers, replace
from exporter.core.lower.markers import MERGE_INTO, MERGE_TOKENS
from exporter.core.lower.passes.selection import behind_prefix, prefix_rows, write_taken

# Above any cosine, so that a survivor joins itself.
ITSELF = 2.0
TRANSPOSED = [0, 2, 1]


def expand_merging(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand MergeInto to a product and ArgMax, and MergeTokens to a product with the weights of the mean.

    1. Both products cover all tokens. Removing and restoring prefix tokens would copy the patches; instead their
       rows are not read in the first product, and take one token each in the second.
    2. The weights hold the size of each token in the row of the survivor it joins. A sum by ScatterElements takes
       twice the time on a CPU.
    3. `core.lower.decisions` finds all nodes but the last product through their tensors and keeps them fp32.
    """
    choosing = markers(graph, MERGE_INTO)
    merging = markers(graph, MERGE_TOKENS)
    for node in choosing:
        _expand_merge_into(graph, node, artefact.spec.num_heads)
    prefixes: gs.Variable | None = None
    for node in merging:
        rows = node.inputs[1]
        prefix = node.attrs["num_prefix_tokens"]
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
    prefix = node.attrs["num_prefix_tokens"]
    count = int(key.shape[-2])
    op = Builder(graph, node, prefix=node.outputs[0].name)
    directions = write_directions(op, key, heads)
    directions.shape = [key.shape[0], count, mean_key_channels(key, heads)]
    rows = op.Add(keep, prefix, name="rows")
    survivors = write_taken(op, directions, rows, keep.shape[1], "survivors")
    transposed = op.Transpose(survivors, perm=TRANSPOSED)
    likeness = op.MatMul(directions, transposed, name="likeness")
    itself = op.Equal(op.Unsqueeze(rows, [1]), np.arange(count)[:, None])
    ranked = op.Where(itself, ITSELF, likeness)
    places = op.ArgMax(ranked, axis=2, keepdims=0)
    of_patches = op.Slice(places, [prefix], [count], [1], name="patches")
    node.outputs = [node.outputs[0]]  # the gap has no reader
    replace(graph, node, of_patches)


def _expand_merge_tokens(
    graph: gs.Graph, node: gs.Node, rows: gs.Variable, largest: int
) -> None:
    """Write weights · tokens / total; row j of the weights holds the sizes of the tokens that join j.

    A division after the product is part of it on a GPU. Weights and totals, of `largest` at most, are scaled by a
    power of two, which changes no bit: no sum is larger than the largest token, which fp16 holds.
    """
    tokens, _, *sizes = node.inputs
    merged, merged_sizes = node.outputs
    survivors = np.arange(node.attrs["num_prefix_tokens"] + node.attrs["kept"])
    op = Builder(graph, node, prefix=merged_sizes.name)
    joins = op.Equal(op.Unsqueeze(rows, [1]), survivors[:, None])
    weights = op.Cast(joins, to=onnx.TensorProto.FLOAT)
    if sizes:
        weights = op.Mul(weights, op.Unsqueeze(sizes[0], [1]))
    total = op.ReduceSum(weights, [2], keepdims=1)
    total_sizes = op.Squeeze(total, [2], name="flat")
    scale = 2.0 ** -math.ceil(math.log2(largest))
    scaled_weights = op.Mul(weights, scale, name="shares")
    scaled_total = op.Mul(total, scale, name="total")
    op = Builder(graph, node, prefix=merged.name)
    weighted_sum = op.MatMul(scaled_weights, tokens, name="sum")
    mean = op.Div(weighted_sum, scaled_total, name="mean")
    replace(graph, node, mean, total_sizes)
