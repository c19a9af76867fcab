"""Expand attention into scale, MatMul, Softmax, MatMul, which runtimes fuse; and the class row with it."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, replace
from exporter.lowering.markers import ATTENTION, CLASS_ROW

__all__ = ["expand_attention"]

TURNED = [0, 1, 3, 2]


def expand_attention(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand both markers, on tensors of shape [batch, heads, tokens, head_dim].

    The audit of a TensorRT engine finds a block's attention by the node names.
    """
    del artefact
    attentions, rows = markers(graph, ATTENTION), markers(graph, CLASS_ROW)
    for node in attentions:
        _expand_attention(graph, node)
    for node in rows:
        _expand_class_row(graph, node)
    return len(attentions) + len(rows)


def _expand_attention(graph: gs.Graph, node: gs.Node) -> None:
    """Write softmax(query · scale · keyᵀ) · value; a float mask is added to the logits, another excludes keys."""
    query, key, value, *mask = node.inputs
    op = Builder(graph, node, prefix=node.outputs[0].name)
    scaled = op.Mul(query, float(node.attrs["scale"]), name="scale_query")
    logits = op.MatMul(scaled, op.Transpose(key, perm=TURNED, name="turn_key"), name="query_key")
    if mask and mask[0].dtype == np.float32:
        logits = op.Add(logits, *mask, name="mask")
    elif mask:
        logits = op.Where(*mask, logits, -np.inf, name="mask")
    weights = op.Softmax(logits, axis=-1, name="softmax")
    replace(graph, node, op.MatMul(weights, value, name="weigh_value"))


def _expand_class_row(graph: gs.Graph, node: gs.Node) -> None:
    """Write the rows scale · q_class · keyᵀ; the class tokens are the first."""
    (query, key), tokens = node.inputs, node.attrs["num_class_tokens"]
    op = Builder(graph, node, prefix=node.outputs[0].name)
    first = op.Slice(query, [0], [tokens], [2], name="take_class")
    scaled = op.Mul(first, float(node.attrs["scale"]), name="scale_query")
    row = op.MatMul(scaled, op.Transpose(key, perm=TURNED, name="turn_key"), name="query_key")
    if tokens == 1:
        replace(graph, node, op.Squeeze(row, [2], name="flatten"))
        return
    rows = int(query.shape[1]) * tokens
    replace(graph, node, op.Reshape(row, [0, rows, -1], name="flatten"))
