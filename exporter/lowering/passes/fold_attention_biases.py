"""Remove the key and value biases of attention projections: each bias costs a pass over memory."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import as_linear, nodes_of
from exporter.lowering.passes.fuse_attention import COMPARES_KEYS

__all__ = ["fold_attention_biases"]


def fold_attention_biases(graph: gs.Graph, artefact: Artefact) -> int:
    """Drop the bias of the keys, and move that of the values into the projection after the attention.

    1. The key's bias adds the same number, query · bias, to every logit of a softmax row, so the softmax does not
       change. The class row changes by one number per head, and its softmax does not. Keys that are
       compared where tokens merge keep their bias: it changes their cosines.
    2. The weights of a row sum to 1, so attention passes the value's bias on unchanged. The projection then turns
       it into bias · W + b, computed in float64.
    3. The values keep their bias where the projection does not directly follow the attention (a norm between them).
    """
    del artefact
    return sum(_drop_key_bias(node) + _move_value_bias(node) for node in nodes_of(graph, "Attention"))


def _drop_key_bias(node: gs.Node) -> int:
    key = node.inputs[1]
    linear = as_linear(key)
    compared = any(reader.op in COMPARES_KEYS for reader in key.outputs)
    if linear is None or linear.bias is None or compared:
        return 0
    multiply, add = linear.nodes
    add.outputs.clear()
    multiply.outputs = [key]
    return 1


def _move_value_bias(node: gs.Node) -> int:
    value, context = node.inputs[2], node.outputs[0]
    linear = as_linear(value)
    if linear is None or linear.bias is None or len(value.outputs) != 1 or len(context.outputs) != 1:
        return 0
    readers = context.outputs[0].outputs[0].outputs
    projection = as_linear(readers[0].outputs[0]) if len(readers) == 1 else None
    if projection is None or projection.bias is None or projection.tokens is not context:
        return 0
    moved = linear.bias.astype(np.float64) @ projection.weight.astype(np.float64) + projection.bias
    name = f"{context.name}/projected_bias"
    projection.nodes[1].inputs[1] = gs.Constant(name, moved.astype(np.float32))
    multiply, add = linear.nodes
    add.outputs.clear()
    multiply.outputs = [value]
    return 1
