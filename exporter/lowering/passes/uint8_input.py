"""Build the normalisation into the graph: the model then takes an image's uint8 pixels."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder

__all__ = ["uint8_input"]


def uint8_input(graph: gs.Graph, artefact: Artefact) -> int:
    """Make `images` uint8 [batch, 3, H, W]; pixels / 255, − mean, / std follow, in PyTorch's order."""
    (images,) = graph.inputs
    readers = list(images.outputs)
    pixels = gs.Variable(images.name, np.uint8, images.shape)
    preprocessing = artefact.spec.preprocessing
    mean, std = (
        np.array(values, dtype=np.float32).reshape(3, 1, 1)
        for values in (preprocessing.mean, preprocessing.std)
    )
    op = Builder(graph, graph.nodes[0], prefix=images.name)
    share = op.Div(op.Cast(pixels, to=onnx.TensorProto.FLOAT), 255.0)
    normalised = op.Div(op.Sub(share, mean), std)
    normalised.inputs[0].outputs = [images]
    images.name = f"{pixels.name}/normalised"
    graph.inputs = [pixels]
    return len(readers)
