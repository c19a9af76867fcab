"""Put pairs of QuantizeLinear and DequantizeLinear before the operands of products, in INT8 or FP8.

A pair before each operand of a product is the form of which TensorRT and OpenVINO make a product of low precision;
before all operands of attention, TensorRT makes a fused kernel in FP8, OpenVINO one in INT8. Activations have one
scale, weights one for each column.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from exporter.lowering.graph import Builder, producer
from exporter.lowering.number_formats import E4M3, INT7, INT8, LEAST_SCALE, UINT8, NumberFormat, Range

__all__ = ["FORMS", "Formats", "Slot", "attention_products", "slots_of", "to_pairs"]

Array = np.ndarray[Any, Any]

_SOFTMAX: Range = (0.0, 1.0)


@dataclass(frozen=True)
class Formats:
    """The formats of the operands of products.

    Attributes:
        activations: Of what linear layers read.
        weights: Of their matrices, and of key and value, the second operands in attention; without a zero point.
        attention: Of the query, and of the softmax; None to leave attention as it is.
        moves: Operators that only move values, and lie between a pair and its product.
    """

    activations: NumberFormat
    weights: NumberFormat
    attention: tuple[NumberFormat, NumberFormat] | None = None
    moves: frozenset[str] = frozenset()


# The forms of pairs. "qdq": INT8 for OpenVINO, whose products of two activations have no zero points; a softmax is
# never negative and needs none. It moves bytes in place of floats, and its product takes in the key's Transpose.
# Second operands for CPUs are INT7: the sums of two products saturate nowhere.
# "qdq-linear": linear layers alone, each pair directly before its product. "symmetric": INT8 for TensorRT, which
# supports no zero point anywhere. "fp8": E4M3. TensorRT's fusions need the pairs directly before the products.
FORMS = {
    "qdq": Formats(UINT8, INT7, attention=(INT8, UINT8), moves=frozenset({"Transpose", "Reshape"})),
    "qdq-linear": Formats(UINT8, INT7),
    "symmetric": Formats(INT8, INT8),
    "fp8": Formats(E4M3, E4M3, attention=(E4M3, E4M3)),
}


@dataclass(frozen=True)
class Slot:
    """Where a pair goes: before input `place` of a node."""

    node: gs.Node
    place: int
    form: NumberFormat

    @property
    def operand(self) -> gs.Tensor:
        """The tensor that is there."""
        return self.node.inputs[self.place]

    @property
    def has_range(self) -> bool:
        """Whether it needs no images: it is a constant, or a softmax in a format of floats.

        The values of a softmax are at most 1. Floats lose nothing by a range that is too large; the steps of
        integers would be as large as most values of a softmax over many tokens.
        """
        softmax = producer(self.operand, "Softmax") is not None
        return isinstance(self.operand, gs.Constant) or (softmax and not self.form.has_steps)


def attention_products(graph: gs.Graph, contexts: Iterable[str]) -> list[gs.Node]:
    """Return both products of each attention whose result is one of `contexts`, as `expand_attention` writes them.

    Raises:
        RuntimeError: One is missing.
    """
    tensors, products = graph.tensors(), []
    for name in (each for context in contexts for each in (f"{context}/query_key", context)):
        product = producer(tensors[name], "MatMul") if name in tensors else None
        if product is None:
            raise RuntimeError(f"no product gives {name}")
        products.append(product)
    return products


def slots_of(
    graph: gs.Graph, linear: Iterable[gs.Node], attention: Iterable[gs.Node], formats: Formats
) -> list[Slot]:
    """Return the slots of linear layers and of products of attention, in the graph's order."""
    layers, products = ({id(node) for node in nodes} for nodes in (linear, attention))
    found = []
    for node in graph.nodes:
        if id(node) in layers:
            found += [_slot(node, 0, formats.activations, formats), Slot(node, 1, formats.weights)]
        elif id(node) in products and formats.attention:
            query, softmax = formats.attention
            first = softmax if producer(node.inputs[0], "Softmax") else query
            found += [_slot(node, 0, first, formats), _slot(node, 1, formats.weights, formats)]
    return found


def _slot(node: gs.Node, place: int, form: NumberFormat, formats: Formats) -> Slot:
    """Return the slot before the moves whose result has no other reader."""
    source = producer(node.inputs[place])
    while source is not None and source.op in formats.moves and len(source.outputs[0].outputs) == 1:
        node, place = source, 0
        source = producer(node.inputs[place])
    return Slot(node, place, form)


def to_pairs(graph: gs.Graph, slots: Sequence[Slot], ranges: Mapping[str, Range]) -> int:
    """Put a pair into each slot; return the number of pairs.

    1. Slots that hold the same tensor in the same format share its pair.
    2. A constant matrix is stored in the format of weights, with a scale for each column.

    Args:
        graph: A lowered graph in fp32, changed in place.
        slots: Of the graph's products.
        ranges: Of each tensor in a slot that has none by itself, by name.
    """
    pairs: dict[str, gs.Variable] = {}
    for slot in slots:
        operand, form = slot.operand, slot.form
        prefix = f"{operand.name}/{form.name}"
        if prefix not in pairs:
            op = Builder(graph, slot.node, prefix=prefix)
            if isinstance(operand, gs.Constant):
                pairs[prefix] = _dequantized(op, operand.values, form)
            else:
                values = _SOFTMAX if slot.has_range else ranges[operand.name]
                pairs[prefix] = _pair(op, operand, values, form)
        slot.node.inputs[slot.place] = pairs[prefix]
    return len(pairs)


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
