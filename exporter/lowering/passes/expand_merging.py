"""Expand merging into standard operators: the survivor that each patch joins, and the weighted mean."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, replace
from exporter.lowering.key_directions import write_directions
from exporter.lowering.markers import DOMAIN, MERGE_INTO, MERGE_TOKENS, TAKE_TOKENS
from exporter.lowering.passes.expand_selection import behind_prefix, prefix_rows

__all__ = ["expand_merging"]

# Above any cosine, so that a survivor joins itself.
ITSELF = 2.0


def expand_merging(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand MergeInto to a product and ArgMax, and MergeTokens to a product with the weights of the mean.

    1. Both products cover all tokens. Removing and restoring prefix tokens would copy the patches; instead their
       rows are not read in the first product, and take one token each in the second.
    2. The weights hold a 1 for each token, in the row of the survivor it joins. A sum by ScatterElements takes
       twice the time on a CPU.
    3. `exporter.lowering.scoring` finds all nodes but the last product through their tensors and keeps them fp32.
    """
    choosing, merging = markers(graph, MERGE_INTO), markers(graph, MERGE_TOKENS)
    for node in choosing:
        _expand_merge_into(graph, node, artefact.spec.num_heads)
    prefixes: gs.Variable | None = None
    for node in merging:
        rows, prefix = node.inputs[1], node.attrs["num_prefix_tokens"]
        if prefix:
            if prefixes is None:
                prefixes = prefix_rows(Builder(graph, node, prefix="merging/prefix"), rows, prefix)
            rows = behind_prefix(Builder(graph, node, prefix=f"{rows.name}/rows"), rows, prefixes, prefix)
        _expand_merge_tokens(graph, node, rows)
    return len(choosing) + len(merging)


def _expand_merge_into(graph: gs.Graph, node: gs.Node, heads: int) -> None:
    """Write ArgMax over survivors of the cosine between mean keys."""
    (key, keep), prefix = node.inputs, node.attrs["num_prefix_tokens"]
    count, channels = int(key.shape[-2]), int(key.shape[-1]) // (heads if len(key.shape) == 3 else 1)
    op = Builder(graph, node, prefix=node.outputs[0].name)
    directions = write_directions(op, key, heads)
    directions.shape = [key.shape[0], count, channels]
    rows = op.Add(keep, prefix, name="rows")
    shape = [key.shape[0], keep.shape[1], channels]
    survivors = op(
        TAKE_TOKENS, directions, rows, name="survivors", domain=DOMAIN, shape=shape, num_prefix_tokens=0
    )
    likeness = op.MatMul(directions, op.Transpose(survivors, perm=[0, 2, 1]), name="likeness")
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
