"""Leave the precision of softmax in attention to the runtime."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import nodes_of

__all__ = ["open_softmax"]


def open_softmax(graph: gs.Graph, artefact: Artefact) -> int:
    """Remove `softmax_precision` from every Attention node: TensorRT's parser refuses the attribute."""
    del artefact
    stated = [node for node in nodes_of(graph, "Attention") if node.attrs.pop("softmax_precision", None)]
    return len(stated)
