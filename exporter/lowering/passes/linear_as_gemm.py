"""Convert linear layers to Gemm on a matrix of tokens: Gemm adds the bias without another pass over memory."""

from typing import Any

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import Linear, as_linear, nodes_of, producer, replace

__all__ = ["linear_as_gemm"]

# Operators between two linear layers that accept a matrix as well as a batch of matrices.
ELEMENTWISE = ("Gelu", "Sigmoid", "Relu", "Erf", "Tanh")


def linear_as_gemm(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert MatMul and Add on [batch, tokens, in] to Reshape, Gemm and Reshape; the reshapes move no data.

    1. Gemm takes only matrices. Between the two layers of an MLP the tokens stay a matrix.
    2. The second Reshape needs a constant shape, so a layer whose number of tokens is not static is left as it is.
    """
    del artefact
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


def _expand(graph: gs.Graph, layer: Linear, matrices: dict[str, gs.Variable]) -> gs.Variable:
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
