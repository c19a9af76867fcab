"""Build the normalisation into the graph: the model then takes the pixels of an image as they are."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact

__all__ = ["uint8_input"]


def uint8_input(graph: gs.Graph, artefact: Artefact) -> int:
    """`images` becomes uint8 [batch, 3, H, W]; pixels / 255, − mean, / std follow, in PyTorch's order."""
    (images,) = graph.inputs
    readers = list(images.outputs)
    preprocessing = artefact.spec.preprocessing
    pixels = gs.Variable(images.name, np.uint8, images.shape)
    images.name, images.inputs = "images/normalised", []
    steps = [
        ("Div", np.array(255.0, dtype=np.float32)),
        ("Sub", np.array(preprocessing.mean, dtype=np.float32).reshape(3, 1, 1)),
        ("Div", np.array(preprocessing.std, dtype=np.float32).reshape(3, 1, 1)),
    ]
    value = gs.Variable("images/float", np.float32)
    nodes = [gs.Node("Cast", "images/cast", {"to": 1}, [pixels], [value])]
    for index, (op, operand) in enumerate(steps):
        last = index == len(steps) - 1
        result = images if last else gs.Variable(f"images/step_{index}", np.float32)
        nodes.append(
            gs.Node(
                op,
                f"images/{op.lower()}_{index}",
                inputs=[value, gs.Constant(f"images/operand_{index}", operand)],
                outputs=[result],
            )
        )
        value = result
    graph.nodes[:0] = nodes
    graph.inputs = [pixels]
    return len(readers)
