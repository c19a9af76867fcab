"""Expand merging into standard operators: the survivor that each patch joins, and the weighted mean."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, replace
from exporter.lowering.markers import DOMAIN, MERGE_INTO, MERGE_TOKENS, TAKE_TOKENS
from exporter.lowering.passes.expand_selection import behind_prefix, prefix_rows

__all__ = ["expand_merging"]

# Larger than any product of a token with a direction, so that a survivor joins itself.
ITSELF = 1e30
# Lower bound of a squared length: tokens that are all equal have no direction.
SHORTEST = 1e-24


def expand_merging(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand MergeInto to a product and ArgMax, and MergeTokens to a product with the weights of the mean.

    1. Only survivors are divided by their length: a token's own length does not change which survivor is nearest.
    2. Both products cover all tokens. Removing and restoring prefix tokens would copy the patches; instead their
       rows are not read in the first product, and take one token each in the second.
    3. The weights hold a 1 for each token, in the row of the survivor it joins. A sum by ScatterElements takes
       twice the time on a CPU.
    4. `exporter.lowering.scoring` finds all nodes but the last product by their names and keeps them fp32.
    """
    del artefact
    choosing, merging = markers(graph, MERGE_INTO), markers(graph, MERGE_TOKENS)
    for node in choosing:
        _expand_merge_into(graph, node)
    prefixes: gs.Variable | None = None
    for node in merging:
        rows, prefix = node.inputs[1], node.attrs["num_prefix_tokens"]
        if prefix:
            if prefixes is None:
                prefixes = prefix_rows(Builder(graph, node, prefix="merging/prefix"), rows, prefix)
            rows = behind_prefix(Builder(graph, node, prefix=f"{rows.name}/rows"), rows, prefixes, prefix)
        _expand_merge_tokens(graph, node, rows)
    return len(choosing) + len(merging)


def _expand_merge_into(graph: gs.Graph, node: gs.Node) -> None:
    """Write ArgMax over survivors of (x − mean) · s / |s|, where s is a survivor's x − mean."""
    (tokens, keep), prefix = node.inputs, node.attrs["num_prefix_tokens"]
    count = int(tokens.shape[1])
    patches = np.zeros((1, count), np.float32)
    patches[0, prefix:] = 1 / (count - prefix)
    op = Builder(graph, node, prefix=node.outputs[0].name)
    centred = op.Sub(tokens, op.MatMul(patches, tokens, name="mean"), name="centred", shape=tokens.shape)
    rows = op.Add(keep, prefix, name="rows")
    shape = [tokens.shape[0], keep.shape[1], tokens.shape[2]]
    survivors = op(
        TAKE_TOKENS, centred, rows, name="survivors", domain=DOMAIN, shape=shape, num_prefix_tokens=0
    )
    squared = op.ReduceSum(op.Mul(survivors, survivors), [2], keepdims=1)
    directions = op.Div(survivors, op.Sqrt(op.Max(squared, SHORTEST)), name="directions")
    likeness = op.MatMul(centred, op.Transpose(directions, perm=[0, 2, 1]), name="likeness")
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
