"""Attention as scale, MatMul, Softmax, MatMul: the shape that runtimes recognise and fuse."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.lowering.markers import ATTENTION
from exporter.lowering.passes.base import Facts, markers, replace

__all__ = ["expand_attention"]


def expand_attention(graph: gs.Graph, facts: Facts) -> int:
    """softmax(query · scale · keyᵀ) · value, on tensors of shape [batch, heads, tokens, head_dim]."""
    del facts
    changed = 0
    for node in markers(graph, ATTENTION):
        query, key, value = node.inputs
        name = node.outputs[0].name
        scaled, turned, logits, weights = (
            gs.Variable(f"{name}/{part}", dtype=np.float32)
            for part in ("scaled", "key_t", "logits", "weights")
        )
        scale = gs.Constant(f"{name}/scale", np.array(node.attrs["scale"], dtype=np.float32))
        replace(
            graph,
            node,
            [
                gs.Node("Mul", f"{name}/scale_query", inputs=[query, scale], outputs=[scaled]),
                gs.Node("Transpose", f"{name}/turn_key", {"perm": [0, 1, 3, 2]}, [key], [turned]),
                gs.Node("MatMul", f"{name}/query_key", inputs=[scaled, turned], outputs=[logits]),
                gs.Node("Softmax", f"{name}/softmax", {"axis": -1}, [logits], [weights]),
                gs.Node("MatMul", f"{name}/weigh_value", inputs=[weights, value]),
            ],
        )
        changed += 1
    return changed
