"""Put pairs of QuantizeLinear and DequantizeLinear before the operands of products, in INT8 or FP8.

A pair before each operand of a product is the form of which TensorRT and OpenVINO make a product of low precision;
before all operands of attention, TensorRT makes a fused kernel in FP8. Activations have one scale, weights one for
each column.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from exporter.lowering.builder import Builder
from exporter.lowering.graph import producer
from exporter.lowering.number_formats import LEAST_SCALE, NumberFormat, Range

__all__ = ["attention_products", "has_range", "to_pairs"]

Array = np.ndarray[Any, Any]

_SOFTMAX: Range = (0.0, 1.0)


def attention_products(graph: gs.Graph, contexts: Collection[str]) -> list[str]:
    """Return the names of both products of each attention in `contexts`, as `expand_attention` names them."""
    wanted = {f"{context}/{part}" for context in contexts for part in ("query_key", "weigh_value")}
    return [node.name for node in graph.nodes if node.name in wanted]


def has_range(operand: gs.Tensor) -> bool:
    """Whether its range needs no images: it is a constant, or a softmax, whose values are at most 1."""
    return isinstance(operand, gs.Constant) or producer(operand, "Softmax") is not None


def to_pairs(
    graph: gs.Graph,
    products: Collection[str],
    ranges: Mapping[str, Range],
    activations: NumberFormat,
    weights: NumberFormat,
) -> int:
    """Put a pair before each operand of the products; return the number of products.

    1. Products that read the same tensor share its pair.
    2. A constant matrix is stored in the format of weights, with a scale for each column.

    Args:
        graph: A lowered graph in fp32, changed in place.
        products: Names of MatMul nodes.
        ranges: Of each operand that has none by itself (`has_range`), by name.
        activations: The format of operands that are no constants.
        weights: The format of constants, without a zero point.
    """
    pairs: dict[str, gs.Variable] = {}
    found = [node for node in graph.nodes if node.name in products]
    for node in found:
        for place, operand in enumerate(node.inputs):
            if operand.name not in pairs:
                form = weights if isinstance(operand, gs.Constant) else activations
                op = Builder(graph, node, prefix=f"{operand.name}/{form.name}")
                if isinstance(operand, gs.Constant):
                    pairs[operand.name] = _dequantized(op, operand.values, form)
                else:
                    values = _SOFTMAX if has_range(operand) else ranges[operand.name]
                    pairs[operand.name] = _pair(op, operand, values, form)
            node.inputs[place] = pairs[operand.name]
    return len(found)


def _dequantized(op: Builder, matrix: Array, form: NumberFormat) -> gs.Variable:
    """Store a matrix [in, out] in the format; return the result of the node that gives its values back."""
    scale = np.maximum(np.abs(matrix).max(axis=0) / form.largest, LEAST_SCALE).astype(np.float32)
    zero, shape = np.zeros(len(scale), form.dtype), list(matrix.shape)
    result = op.DequantizeLinear(
        form.stored(matrix, scale), scale, zero, axis=1, name="dequantize", shape=shape
    )
    result.dtype = np.dtype(np.float32)
    return result


def _pair(op: Builder, tensor: gs.Variable, values: Range, form: NumberFormat) -> gs.Variable:
    scale, zero_point = form.scale_of(values)
    step, zero = np.array(scale, np.float32), np.array(zero_point, form.dtype)
    quantized = op.QuantizeLinear(tensor, step, zero, name="quantize", shape=tensor.shape)
    quantized.dtype = form.dtype
    result = op.DequantizeLinear(quantized, step, zero, name="dequantize", shape=tensor.shape)
    result.dtype = np.dtype(np.float32)
    return result
