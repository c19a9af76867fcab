"""Write the attention node of opset 23 on heads again: pairs of Q and DQ lie between its parts."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import nodes_of, replace
from exporter.lowering.markers import ATTENTION, DOMAIN

__all__ = ["split_heads"]

# [batch, tokens, heads, head_dim] to [batch, heads, tokens, head_dim], and back.
TURNED = [0, 2, 1, 3]


def split_heads(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert every node on [batch, tokens, dim] to the marker on heads, which a later pass expands.

    It runs behind the passes that read attention as one node: query, key and value stay products of their own,
    without the biases that those passes remove.
    """
    del artefact
    fused = [node for node in nodes_of(graph, "Attention") if "q_num_heads" in node.attrs]
    for node in fused:
        _split(graph, node)
    return len(fused)


def _split(graph: gs.Graph, node: gs.Node) -> None:
    (query, key, value, *mask), (merged,) = node.inputs, node.outputs
    heads, dim = node.attrs["q_num_heads"], int(np.asarray(value.shape)[-1])
    name, merged.name = merged.name, f"{merged.name}/merged"
    op = Builder(graph, node, prefix=name)
    by_head = (
        op.Transpose(op.Reshape(part, [0, 0, heads, -1], name=f"split_{of}"), perm=TURNED, name=f"{of}_heads")
        for of, part in (("query", query), ("key", key), ("value", value))
    )
    scale = node.attrs["scale"]
    context = op(ATTENTION, *by_head, *mask, domain=DOMAIN, scale=scale, name="attention", out=name)
    tokens = op.Transpose(context, perm=TURNED, name="turn_heads")
    replace(graph, node, op.Reshape(tokens, [0, 0, dim], name="merge_heads", shape=merged.shape))
