"""Quantize products to FP8 in E4M3 (Micikevicius et al. 2022): pairs of QuantizeLinear and DequantizeLinear.

A pair before each operand of a product is the form from which TensorRT makes a product in FP8; before all operands
of attention, a fused kernel in FP8. Activations have one scale, weights one for each column.
"""

from collections.abc import Collection, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx_graphsurgeon as gs

from exporter.lowering.builder import Builder
from exporter.lowering.graph import producer

__all__ = ["LARGEST", "attention_products", "to_fp8"]

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
LARGEST = float(ml_dtypes.finfo(E4M3).max)  # 448

Array = np.ndarray[Any, Any]


def attention_products(graph: gs.Graph, contexts: Collection[str]) -> list[str]:
    """Return the names of both products of each attention in `contexts`, as `expand_attention` names them."""
    wanted = {f"{context}/{part}" for context in contexts for part in ("query_key", "weigh_value")}
    return [node.name for node in graph.nodes if node.name in wanted]


def to_fp8(
    graph: gs.Graph, products: Collection[str], ranges: Mapping[str, float], least_scale: float
) -> int:
    """Put a pair before each operand of the products; return the number of products.

    1. Products that read the same tensor share its pair.
    2. A constant matrix is stored in E4M3, with a scale for each column.
    3. A softmax needs no range: its values are at most 1.

    Args:
        graph: A lowered graph in fp32, changed in place.
        products: Names of MatMul nodes.
        ranges: The largest magnitude of each operand that is no constant, by name.
        least_scale: The smallest scale to use.
    """
    pairs: dict[str, gs.Variable] = {}
    found = [node for node in graph.nodes if node.name in products]
    for node in found:
        for place, operand in enumerate(node.inputs):
            if operand.name not in pairs:
                op = Builder(graph, node, prefix=f"{operand.name}/fp8")
                if isinstance(operand, gs.Constant):
                    pairs[operand.name] = _stored(op, operand.values, least_scale)
                else:
                    largest = 1.0 if producer(operand, "Softmax") else ranges[operand.name]
                    pairs[operand.name] = _pair(op, operand, max(largest / LARGEST, least_scale))
            node.inputs[place] = pairs[operand.name]
    return len(found)


def _stored(op: Builder, matrix: Array, least_scale: float) -> gs.Variable:
    """Write a matrix [in, out] in E4M3, and the node that gives its values back."""
    scale = np.maximum(np.abs(matrix).max(axis=0) / LARGEST, least_scale).astype(np.float32)
    zero, shape = np.zeros(len(scale), E4M3), list(matrix.shape)
    stored = np.clip(matrix / scale, -LARGEST, LARGEST).astype(E4M3)
    result = op.DequantizeLinear(stored, scale, zero, axis=1, name="dequantize", shape=shape)
    result.dtype = np.dtype(np.float32)
    return result


def _pair(op: Builder, tensor: gs.Variable, scale: float) -> gs.Variable:
    step, zero = np.array(scale, np.float32), np.zeros((), E4M3)
    quantized = op.QuantizeLinear(tensor, step, zero, name="quantize", shape=tensor.shape)
    quantized.dtype = E4M3
    result = op.DequantizeLinear(quantized, step, zero, name="dequantize", shape=tensor.shape)
    result.dtype = np.dtype(np.float32)
    return result
