"""Linear layers on a matrix of tokens: the bias then goes into the product, and not over memory once more."""

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.passes.base import Linear, as_linear, replace

__all__ = ["linear_as_gemm"]

# What may stand between two linear layers and takes a matrix as well as a batch of them.
ELEMENTWISE = ("Gelu", "Sigmoid", "Relu", "Erf", "Tanh")


def linear_as_gemm(graph: gs.Graph, artefact: Artefact) -> int:
    """MatMul and Add on [batch, tokens, in] become Reshape, Gemm and Reshape; the reshapes move nothing.

    1. Gemm takes matrices alone. Between the two layers of an MLP the tokens stay one.
    2. The way back is by a constant shape, so a layer whose number of tokens is not known is left as it is.
    """
    del artefact
    changed = 0
    for node in list(graph.nodes):
        linear = as_linear(node.outputs[0]) if node.op == "Add" and node.outputs else None
        if linear is not None and _is_counted(node.outputs[0]):
            _expand(graph, linear)
            changed += 1
    if changed:
        _stay_flat(graph)
    return changed


def _is_counted(result: gs.Variable) -> bool:
    """Three axes, with a number of tokens that is known."""
    shape: Any = result.shape
    return shape is not None and len(shape) == 3 and isinstance(shape[1], int)


def _expand(graph: gs.Graph, linear: Linear) -> None:
    multiply, add = linear.nodes
    result = add.outputs[0]
    name, (batch, tokens, width) = result.name, result.shape
    rows = f"{batch}*{tokens}"
    flat = gs.Variable(f"{name}/flat", np.float32, [rows, linear.weight.shape[0]])
    product = gs.Variable(f"{name}/matrix", np.float32, [rows, width])
    weight, bias = multiply.inputs[1], add.inputs[1]
    add.inputs.clear()
    multiply.inputs.clear()
    replace(
        graph,
        add,
        [
            gs.Node("Reshape", f"{name}/flatten", {}, [linear.tokens, _flat(flat)], [flat]),
            gs.Node("Gemm", f"{name}/gemm", {}, [flat, weight, bias], [product]),
            gs.Node(
                "Reshape",
                f"{name}/unflatten",
                inputs=[product, gs.Constant(f"{name}/shape", np.array([-1, tokens, width]))],
            ),
        ],
    )


def _stay_flat(graph: gs.Graph) -> None:
    """Take out each pair of reshapes, back and there again, with at most element-wise operators between."""
    for node in graph.nodes:
        if node.op != "Reshape" or not node.name.endswith("/flatten"):
            continue
        between: list[gs.Node] = []
        tensor = node.inputs[0]
        while tensor.inputs and tensor.inputs[0].op in ELEMENTWISE and len(tensor.outputs) == 1:
            between.insert(0, tensor.inputs[0])
            tensor = between[0].inputs[0]
        back = tensor.inputs[0] if tensor.inputs else None
        if back is None or not back.name.endswith("/unflatten") or len(tensor.outputs) != 1:
            continue
        flat = back.inputs[0]
        for each in between:
            each.inputs[0] = flat
            flat = each.outputs[0]
            flat.shape = node.outputs[0].shape
        reader = node.outputs[0].outputs[0]
        node.outputs.clear()
        reader.inputs[0] = flat


def _flat(result: gs.Variable) -> gs.Constant:
    return gs.Constant(f"{result.name}/shape", np.array([-1, result.shape[1]]))
