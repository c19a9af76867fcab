"""Linear layers on tokens, as Gemm or as MatMul and Add; and the patch embedding as one of them."""

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import (
    Builder,
    LinearLayer,
    as_linear,
    nodes_of,
    producer,
    replace,
    write_linear,
)

# Operators between two linear layers that accept a matrix as well as a batch of matrices.
ELEMENTWISE = ("Gelu", "Sigmoid", "Relu", "Erf", "Tanh")


def linear_as_gemm(graph: gs.Graph, _: Artefact) -> int:
    """Convert MatMul and Add on [batch, tokens, in] to Reshape, Gemm and Reshape; the reshapes move no data.

    1. Gemm takes only matrices. Between the two layers of an MLP the tokens stay a matrix.
    2. The second Reshape needs a constant shape, so a layer whose number of tokens is not static is left as it is.
    """
    matrices: dict[str, gs.Variable] = {}  # results of earlier layers as matrices, by name
    for node in nodes_of(graph, "Add"):
        result = node.outputs[0]
        layer = as_linear(result)
        if layer is not None and _has_static_tokens(result):
            matrices[result.name] = _expand(graph, layer, matrices)
    return len(matrices)


def _has_static_tokens(result: gs.Variable) -> bool:
    """Whether the result has three axes and a static number of tokens."""
    shape: Any = result.shape
    return shape is not None and len(shape) == 3 and isinstance(shape[1], int)


def _expand(
    graph: gs.Graph, layer: LinearLayer, matrices: dict[str, gs.Variable]
) -> gs.Variable:
    """Rewrite one layer; return its result as a matrix."""
    multiply, add = layer.nodes
    (result,), (batch, tokens, width) = add.outputs, add.outputs[0].shape
    (_, weight), bias = multiply.inputs, add.inputs[1]
    rows = f"{batch}*{tokens}"
    op = Builder(graph, add, prefix=result.name)
    matrix = _stay_flat(layer.tokens, matrices)
    if matrix is None:
        across = weight.values.shape[0]
        matrix = op.Reshape(layer.tokens, [-1, across], name="flatten", shape=[rows, across])
    multiply.inputs.clear()
    product = op.Gemm(matrix, weight, bias, name="gemm", shape=[rows, width])
    replace(graph, add, op.Reshape(product, [-1, tokens, width], name="unflatten"))
    return product


def _stay_flat(tokens: gs.Variable, matrices: dict[str, gs.Variable]) -> gs.Variable | None:
    """Return the tokens as the matrix that they were before the last Reshape, through element-wise nodes.

    None where they were not a matrix, or where another node reads them with three axes.
    """
    between: list[gs.Node] = []
    tensor = tokens
    while tensor.name not in matrices:
        node = producer(tensor)
        if node is None or node.op not in ELEMENTWISE or len(tensor.outputs) != 1:
            return None
        between.insert(0, node)
        tensor = node.inputs[0]
    if len(tensor.outputs) != 1:
        return None
    matrix = matrices[tensor.name]
    for node in between:
        node.inputs[0] = matrix
        node.outputs[0].shape = matrix.shape
        matrix = node.outputs[0]
    return matrix


def split_gemm(graph: gs.Graph, _: Artefact) -> int:
    """Convert every Gemm of activations with a constant matrix; the constants take in factors other than 1."""
    gemms = [node for node in nodes_of(graph, "Gemm") if _is_linear(node)]
    for node in gemms:
        activations, matrix, *added = node.inputs
        turned = matrix.values.T if node.attrs.get("transB", 0) else matrix.values
        alpha, beta = (np.float32(node.attrs.get(key, 1.0)) for key in ("alpha", "beta"))
        bias = added[0].values * beta if added else None
        op = Builder(graph, node, prefix=node.name)
        replace(
            graph,
            node,
            write_linear(op, activations, turned * alpha, bias, node.outputs[0].shape),
        )
    return len(gemms)


def _is_linear(gemm: gs.Node) -> bool:
    constants = all(isinstance(each, gs.Constant) for each in gemm.inputs[1:])
    return constants and not gemm.attrs.get("transA", 0)


def patches_as_linear(graph: gs.Graph, _: Artefact) -> int:
    """Convert a Conv whose kernel equals its stride, with its Reshape and Transpose, to patches, MatMul and Add.

    1. Patches do not overlap, so cutting the images into patches copies each pixel once.
    2. Convolutions before the last one, and those with padding, are left as they are.
    """
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
    if (
        len(readers) != 1
        or readers[0].op != "Reshape"
        or len(readers[0].outputs[0].outputs) != 1
    ):
        return None
    turn = readers[0].outputs[0].outputs[0]
    return turn if turn.op == "Transpose" and turn.attrs.get("perm") == [0, 2, 1] else None


def _cuts_patches(conv: gs.Node) -> bool:
    weights, image = conv.inputs[1], conv.inputs[0].shape
    if image is None or not all(isinstance(each, gs.Constant) for each in conv.inputs[1:]):
        return False
    kernel = list(weights.values.shape[2:])
    plain = not any(conv.attrs.get("pads", [0])) and set(conv.attrs.get("dilations", [1])) == {
        1
    }
    fits = all(size % each == 0 for size, each in zip(image[2:], kernel, strict=True))
    return bool(
        plain
        and conv.attrs.get("group", 1) == 1
        and conv.attrs.get("strides") == kernel
        and fits
    )


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
    replace(graph, turn, write_linear(op, tokens, matrix, added, [batch, rows * columns, dim]))
