"""Write attention as the standard node of opset 23, on heads as the exporter splits them."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, replace
from exporter.lowering.markers import ATTENTION
from exporter.tensor_names import POOLING

__all__ = ["standard_attention"]


def standard_attention(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert the attention of every block, on tensors of shape [batch, heads, tokens, head_dim].

    A head that pools by attention has one query an image, for which TensorRT may have no fused kernel, and it does
    not decompose the node: that attention is left to a later pass.
    """
    del artefact
    blocks = [node for node in markers(graph, ATTENTION) if node.outputs[0].name != POOLING]
    for node in blocks:
        op = Builder(graph, node, prefix=node.outputs[0].name)
        scale = float(node.attrs["scale"])
        shape = node.outputs[0].shape
        replace(graph, node, op.Attention(*node.inputs, scale=scale, name="attention", shape=shape))
    return len(blocks)
