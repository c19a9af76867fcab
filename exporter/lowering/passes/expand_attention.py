"""Attention as scale, MatMul, Softmax, MatMul, which runtimes recognise and fuse; the class row beside it."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.markers import ATTENTION, CLASS_ROW
from exporter.lowering.passes.base import markers, replace

__all__ = ["expand_attention"]


def expand_attention(graph: gs.Graph, artefact: Artefact) -> int:
    """Both markers, on tensors of shape [batch, heads, tokens, head_dim]."""
    del artefact
    attentions, rows = list(markers(graph, ATTENTION)), list(markers(graph, CLASS_ROW))
    for node in attentions:
        _expand_attention(graph, node)
    for node in rows:
        _expand_class_row(graph, node)
    return len(attentions) + len(rows)


def _expand_attention(graph: gs.Graph, node: gs.Node) -> None:
    """softmax(query · scale · keyᵀ) · value, over the keys that the mask leaves, where there is one."""
    query, key, value, *mask = node.inputs
    name = node.outputs[0].name
    scaled, turned, logits, weights = _variables(name, "scaled", "key_t", "logits", "weights")
    new = [
        gs.Node("Mul", f"{name}/scale_query", inputs=[query, _scale(node)], outputs=[scaled]),
        gs.Node("Transpose", f"{name}/turn_key", {"perm": [0, 1, 3, 2]}, [key], [turned]),
        gs.Node("MatMul", f"{name}/query_key", inputs=[scaled, turned], outputs=[logits]),
    ]
    if mask:
        (masked,) = _variables(name, "masked")
        nothing = gs.Constant(f"{name}/nothing", np.array(-np.inf, dtype=np.float32))
        new.append(gs.Node("Where", f"{name}/mask", inputs=[*mask, logits, nothing], outputs=[masked]))
        logits = masked
    new += [
        gs.Node("Softmax", f"{name}/softmax", {"axis": -1}, [logits], [weights]),
        gs.Node("MatMul", f"{name}/weigh_value", inputs=[weights, value]),
    ]
    replace(graph, node, new)


def _expand_class_row(graph: gs.Graph, node: gs.Node) -> None:
    """The row scale · q_class · keyᵀ, the class token being the first."""
    query, key = node.inputs
    name = node.outputs[0].name
    first, scaled, turned, row = _variables(name, "class_query", "scaled", "key_t", "row")
    start, end, axis = (
        gs.Constant(f"{name}/{part}", np.array([n])) for part, n in zip("ioa", (0, 1, 2), strict=True)
    )
    replace(
        graph,
        node,
        [
            gs.Node("Slice", f"{name}/take_class", inputs=[query, start, end, axis], outputs=[first]),
            gs.Node("Mul", f"{name}/scale_query", inputs=[first, _scale(node)], outputs=[scaled]),
            gs.Node("Transpose", f"{name}/turn_key", {"perm": [0, 1, 3, 2]}, [key], [turned]),
            gs.Node("MatMul", f"{name}/query_key", inputs=[scaled, turned], outputs=[row]),
            gs.Node("Squeeze", f"{name}/flatten", inputs=[row, axis]),
        ],
    )


def _variables(name: str, *parts: str) -> list[gs.Variable]:
    return [gs.Variable(f"{name}/{part}", dtype=np.float32) for part in parts]


def _scale(node: gs.Node) -> gs.Constant:
    return gs.Constant(f"{node.outputs[0].name}/scale", np.array(node.attrs["scale"], dtype=np.float32))
