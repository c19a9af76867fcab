"""Convert the patch embedding to a linear layer on flattened patches, which runs in INT8, unlike a convolution."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import linear, nodes_of, replace

__all__ = ["patches_as_linear"]


def patches_as_linear(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert a Conv whose kernel equals its stride, with its Reshape and Transpose, to patches, MatMul and Add.

    1. Patches do not overlap, so cutting the images into patches copies each pixel once.
    2. Convolutions before the last one, and those with padding, are left as they are.
    """
    del artefact
    changed = 0
    for node in nodes_of(graph, "Conv"):
        tokens = _tokens_of(node)
        if tokens is not None and _cuts_patches(node):
            _as_linear(graph, node, tokens)
            changed += 1
    return changed


def _tokens_of(conv: gs.Node) -> gs.Node | None:
    """Return the Transpose that ends [batch, dim, rows, columns] → [batch, patches, dim], or None."""
    # The exporter of torch 2.6 also reads the shape, for the Reshape.
    readers = [node for node in conv.outputs[0].outputs if node.op != "Shape"]
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
    images, kernel, *bias = conv.inputs
    batch, channels, height, width = images.shape
    dim, _, tall, wide = kernel.values.shape
    rows, columns, flat = height // tall, width // wide, channels * tall * wide
    grid, patches = [channels, rows, tall, columns, wide], [rows * columns, flat]
    op = Builder(graph, turn, prefix=conv.outputs[0].name)
    cut = op.Transpose(
        op.Reshape(images, [-1, *grid], name="to_grid", shape=[batch, *grid]),
        perm=[0, 2, 4, 1, 3, 5],
        name="cut_patches",
        shape=[batch, rows, columns, channels, tall, wide],
    )
    tokens = op.Reshape(cut, [-1, *patches], name="flatten", shape=[batch, *patches])
    matrix = kernel.values.reshape(dim, flat).T
    added = bias[0].values if bias else None
    replace(graph, turn, linear(op, tokens, matrix, added, [batch, rows * columns, dim]))
