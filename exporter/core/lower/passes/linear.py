"""Linear layers on tokens, as Gemm or as MatMul and Add; and the patch embedding as one of them."""

from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.lower.graph import (
    Builder,
    LinearLayer,
    as_linear,
    has_constants,
    has_static_rows,
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
    # Results of earlier layers as matrices, by name.
    matrices: dict[str, gs.Variable] = {}
    for node in nodes_of(graph, "Add"):
        result = node.outputs[0]
        layer = as_linear(result)
        if layer is not None and has_static_rows(result):
            matrices[result.name] = _expand(graph, layer, matrices)
    return len(matrices)


def _expand(
    graph: gs.Graph, layer: LinearLayer, matrices: dict[str, gs.Variable]
) -> gs.Variable:
    """Rewrite one layer; return its result as a matrix."""
    multiply, add = layer.nodes
    result = add.outputs[0]
    weight = multiply.inputs[1]
    bias = add.inputs[1]
    batch, tokens, width = result.shape
    rows = f"{batch}*{tokens}"
    op = Builder(graph, add, prefix=result.name)
    matrix = _stay_flat(layer.tokens, matrices)
    if matrix is None:
        across = weight.values.shape[0]
        matrix = op.Reshape(
            layer.tokens, [-1, across], name="flatten", shape=[rows, across]
        )
    multiply.inputs.clear()
    product = op.Gemm(matrix, weight, bias, name="gemm", shape=[rows, width])
    replace(graph, add, op.Reshape(product, [-1, tokens, width], name="unflatten"))
    return product


def _stay_flat(
    tokens: gs.Variable, matrices: dict[str, gs.Variable]
) -> gs.Variable | None:
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
        activations, matrix = node.inputs[:2]
        weight = matrix.values.T if node.attrs.get("transB", 0) else matrix.values
        weight = weight * np.float32(node.attrs.get("alpha", 1.0))
        bias = None
        if len(node.inputs) > 2:
            bias = node.inputs[2].values * np.float32(node.attrs.get("beta", 1.0))
        op = Builder(graph, node, prefix=node.name)
        layer = write_linear(op, activations, weight, bias, node.outputs[0].shape)
        replace(graph, node, layer)
    return len(gemms)


def _is_linear(gemm: gs.Node) -> bool:
    return has_constants(gemm) and not gemm.attrs.get("transA", 0)


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
    flatten = _only(
        [node for node in conv.outputs[0].outputs if node.op != "Shape"], "Reshape"
    )
    turn = (
        _only(flatten.outputs[0].outputs, "Transpose") if flatten is not None else None
    )
    return turn if turn is not None and turn.attrs.get("perm") == [0, 2, 1] else None


def _only(readers: Sequence[gs.Node], operator: str) -> gs.Node | None:
    """Return the only reader, if it is this operator."""
    return readers[0] if [reader.op for reader in readers] == [operator] else None


def _cuts_patches(conv: gs.Node) -> bool:
    """Whether a convolution with constant weights reads each pixel of its image once."""
    image = conv.inputs[0].shape
    if image is None or not has_constants(conv):
        return False
    kernel = list(conv.inputs[1].values.shape[2:])
    if any(size % step for size, step in zip(image[2:], kernel, strict=True)):
        return False
    padded = any(conv.attrs.get("pads", []))
    spread = set(conv.attrs.get("dilations", [1]))
    grouped = conv.attrs.get("group", 1) != 1
    return bool(
        conv.attrs.get("strides") == kernel
        and not padded
        and spread == {1}
        and not grouped
    )


def _as_linear(graph: gs.Graph, conv: gs.Node, turn: gs.Node) -> None:
    images, kernel = conv.inputs[:2]
    batch, channels, height, width = images.shape
    dim, _, tall, wide = kernel.values.shape
    rows = height // tall
    columns = width // wide
    values = channels * tall * wide
    grid = [channels, rows, tall, columns, wide]
    op = Builder(graph, turn, prefix=conv.outputs[0].name)
    cut = op.Transpose(
        op.Reshape(images, [-1, *grid], name="to_grid", shape=[batch, *grid]),
        perm=[0, 2, 4, 1, 3, 5],
        name="cut_patches",
        shape=[batch, rows, columns, channels, tall, wide],
    )
    patches = [rows * columns, values]
    tokens = op.Reshape(cut, [-1, *patches], name="flatten", shape=[batch, *patches])
    weight = kernel.values.reshape(dim, values).T
    bias = conv.inputs[2].values if len(conv.inputs) > 2 else None
    layer = write_linear(op, tokens, weight, bias, [batch, rows * columns, dim])
    replace(graph, turn, layer)
