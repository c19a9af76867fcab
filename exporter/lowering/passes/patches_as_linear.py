"""The patch embedding as a linear layer on flattened patches: what runs in INT8 where a convolution does not."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.passes.base import replace

__all__ = ["patches_as_linear"]


def patches_as_linear(graph: gs.Graph, artefact: Artefact) -> int:
    """Conv whose kernel is its stride, then Reshape and Transpose to tokens: cut, one product, one sum.

    1. Patches do not overlap, so to cut the images into them copies each pixel once.
    2. Convolutions before the last one, or with padding, are another embedding; they are left alone.
    """
    del artefact
    changed = 0
    for node in [node for node in graph.nodes if node.op == "Conv"]:
        tokens = _tokens_of(node)
        if tokens is not None and _cuts_patches(node):
            _as_linear(graph, node, tokens)
            changed += 1
    return changed


def _tokens_of(conv: gs.Node) -> gs.Node | None:
    """The Transpose that ends [batch, dim, rows, columns] → [batch, patches, dim], None where there is none."""
    readers = conv.outputs[0].outputs
    if len(readers) != 1 or readers[0].op != "Reshape" or len(readers[0].outputs[0].outputs) != 1:
        return None
    turn = readers[0].outputs[0].outputs[0]
    return turn if turn.op == "Transpose" and turn.attrs.get("perm") == [0, 2, 1] else None


def _cuts_patches(conv: gs.Node) -> bool:
    weights, image = conv.inputs[1], conv.inputs[0].shape
    if image is None or not all(isinstance(each, gs.Constant) for each in conv.inputs[1:]):
        return False
    kernel = list(weights.values.shape[2:])
    plain = not any(conv.attrs.get("pads", [0])) and set(conv.attrs.get("dilations", [1])) == {1}
    fits = all(size % each == 0 for size, each in zip(image[2:], kernel, strict=True))
    return bool(plain and conv.attrs.get("group", 1) == 1 and conv.attrs.get("strides") == kernel and fits)


def _as_linear(graph: gs.Graph, conv: gs.Node, turn: gs.Node) -> None:
    images, weights, *bias = conv.inputs
    batch, channels, height, width = images.shape
    dim, _, tall, wide = weights.values.shape
    rows, columns, name = height // tall, width // wide, conv.outputs[0].name
    flat = channels * tall * wide

    def tensor(part: str, shape: list[int | str]) -> gs.Variable:
        return gs.Variable(f"{name}/{part}", np.float32, shape)

    def sizes(part: str, shape: list[int]) -> gs.Constant:
        return gs.Constant(f"{name}/{part}", np.array(shape, dtype=np.int64))

    grid = tensor("grid", [batch, channels, rows, tall, columns, wide])
    cut = tensor("cut", [batch, rows, columns, channels, tall, wide])
    patches = tensor("patches", [batch, rows * columns, flat])
    product = tensor("product", [batch, rows * columns, dim])
    matrix = gs.Constant(f"{name}/matrix", weights.values.reshape(dim, flat).T.copy())
    to_grid = sizes("grid_shape", [-1, channels, rows, tall, columns, wide])
    to_patches = sizes("patches_shape", [-1, rows * columns, flat])
    new = [
        gs.Node("Reshape", f"{name}/to_grid", {}, [images, to_grid], [grid]),
        gs.Node("Transpose", f"{name}/cut_patches", {"perm": [0, 2, 4, 1, 3, 5]}, [grid], [cut]),
        gs.Node("Reshape", f"{name}/flatten", {}, [cut, to_patches], [patches]),
        gs.Node("MatMul", f"{name}/multiply", {}, [patches, matrix], [product]),
        gs.Node("Add", f"{name}/add_bias", {}, [product, *bias]),
    ]
    replace(graph, turn, new if bias else new[:-1])
