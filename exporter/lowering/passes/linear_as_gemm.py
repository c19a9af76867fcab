"""Linear layers on a matrix of tokens: the bias then goes into the product, and not over memory once more."""

from typing import Any

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import Linear, as_linear, nodes_of, producer, replace

__all__ = ["linear_as_gemm"]

# What may stand between two linear layers and takes a matrix as well as a batch of them.
ELEMENTWISE = ("Gelu", "Sigmoid", "Relu", "Erf", "Tanh")


def linear_as_gemm(graph: gs.Graph, artefact: Artefact) -> int:
    """MatMul and Add on [batch, tokens, in] become Reshape, Gemm and Reshape; the reshapes move nothing.

    1. Gemm takes matrices alone. Between the two layers of an MLP the tokens stay one.
    2. The way back is by a constant shape, so a layer whose number of tokens is not known is left as it is.
    """
    del artefact
    matrices: dict[str, gs.Variable] = {}  # what was made of the result of each layer before, by its name
    for node in nodes_of(graph, "Add"):
        result = node.outputs[0]
        layer = as_linear(result)
        if layer is not None and _is_counted(result):
            matrices[result.name] = _expand(graph, layer, matrices)
    return len(matrices)


def _is_counted(result: gs.Variable) -> bool:
    """Three axes, with a number of tokens that is known."""
    shape: Any = result.shape
    return shape is not None and len(shape) == 3 and isinstance(shape[1], int)


def _expand(graph: gs.Graph, layer: Linear, matrices: dict[str, gs.Variable]) -> gs.Variable:
    """Rewrite one layer; its result as a matrix."""
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
    """The matrix that tokens already are before they are laid out again, up to what is element-wise.

    None where they were no matrix, or where something else reads them with their three axes.
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
