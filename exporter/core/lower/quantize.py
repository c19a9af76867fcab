"""Quantize linear layers, and for some runtimes attention, to INT8 or FP8, with a scale for each column of weights.

Norms, softmax, scores, the selection and the classifier stay in fp32. A pair of QuantizeLinear and DequantizeLinear
before each operand of a product is the form of which TensorRT and OpenVINO make a product of low precision; before
all operands of attention, TensorRT makes a fused kernel in FP8, OpenVINO one in INT8. Activations have one scale.
"""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ModelError, imported
from exporter.core.base.tensor_names import Array, context_name
from exporter.core.lower.decisions import behind, scoring_nodes
from exporter.core.lower.graph import Builder, import_graph, producer, sort_nodes
from exporter.core.lower.number_formats import (
    E4M3,
    INT7,
    INT8,
    LEAST_SCALE,
    UINT8,
    NumberFormat,
    Range,
    activation_ranges,
)

_SOFTMAX: Range = (0.0, 1.0)


@dataclass(frozen=True)
class Formats:
    """The formats of the operands of products.

    Attributes:
        activations: Of what linear layers read.
        weights: Of their matrices, and of key and value, the second operands in attention; without a zero point.
        attention: Of the query, and of the softmax; None to leave attention as it is.
        moves: Operators that only move values, and lie between a pair and its product.
        in_biases: Whether biases take in the zero points of activations.
    """

    activations: NumberFormat
    weights: NumberFormat
    attention: tuple[NumberFormat, NumberFormat] | None = None
    moves: frozenset[str] = frozenset()
    in_biases: bool = False


# The forms of pairs. "qdq": INT8 for OpenVINO, whose products of two activations have no zero points; a softmax is
# never negative and needs none. It moves bytes in place of floats, and its product takes in the key's Transpose.
# Second operands for CPUs are INT7: the sums of two products saturate nowhere.
# "symmetric": INT8 for TensorRT, which supports no zero point anywhere. "fp8": E4M3. TensorRT's
# fusions need the pairs directly before the products.
FORMS = {
    "qdq": Formats(
        UINT8,
        INT7,
        attention=(INT8, UINT8),
        moves=frozenset({"Transpose", "Reshape"}),
        in_biases=True,
    ),
    "symmetric": Formats(INT8, INT8),
    "fp8": Formats(E4M3, E4M3, attention=(E4M3, E4M3)),
}

# Declares that shapes are inferred; without it the quantizer warns that they may not be.
_PREPARED = ("onnx.quant.pre_process", "onnxruntime.quant")


def quantized(
    model: onnx.ModelProto, artefact: Artefact, form: str, images: Array | None
) -> onnx.ModelProto:
    """Return the model with linear layers, and where the form has it attention, in INT8 or FP8.

    The model is a lowered one in fp32, whose linear layers are MatMul with a constant. Ranges are taken from
    images [n, 3, H, W], as the model takes them; dynamic quantization needs none.
    """
    graph = import_graph(model)
    products = list(_linear(graph, scoring_nodes(graph, artefact)))
    if not products:
        raise RuntimeError(f"{form}: no linear layer to quantize")
    if form == "dynamic":
        return _dynamic(model, sorted(node.name for node in products))
    if images is None or not len(images):
        got = "no images"
        need = "some to take the ranges of activations from"
        raise ModelError(artefact.target.precision.upper(), got, need, "give --images")
    contexts = [context_name(layer) for layer in artefact.spec.attention_layers]
    attention = attention_products(graph, contexts) if FORMS[form].attention else []
    slots = slots_of(graph, products, attention, FORMS[form])
    formats = {slot.operand.name: slot.form for slot in slots if not slot.has_range}
    to_pairs(graph, slots, activation_ranges(model, formats, images))
    if FORMS[form].in_biases:
        zero_points_into_biases(graph, products, FORMS[form].moves)
    return gs.export_onnx(graph)


def _linear(graph: gs.Graph, scoring: frozenset[int]) -> Iterator[gs.Node]:
    """Yield the products with a constant matrix, except those that score patches or give the outputs."""
    exact = scoring | {id(node) for node in behind(graph.outputs)}
    for node in graph.nodes:
        constant = node.op == "MatMul" and isinstance(node.inputs[1], gs.Constant)
        if constant and id(node) not in exact:
            yield node


def _dynamic(model: onnx.ModelProto, nodes: list[str]) -> onnx.ModelProto:
    """Return the model with INT8 whose ranges come from the running batch, for ONNX Runtime.

    It computes scale, product and bias in one kernel, faster than pairs. An image's answer depends, within the
    rounding, on the other images in its batch. Weights are INT7: unsigned ones of 8 bits do not saturate either,
    but ONNX Runtime 1.32 is slower with them on every CPU.
    """
    quantization = imported("onnxruntime.quantization", "onnxruntime", "onnxruntime")
    prepared = onnx.shape_inference.infer_shapes(model)
    onnx.helper.set_model_props(prepared, dict([_PREPARED]))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "quantized.onnx"
        quantization.quantize_dynamic(
            prepared,
            place,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=nodes,
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            reduce_range=True,  # of weights, to INT7
        )
        result = onnx.load(place)
    del result.graph.value_info[:], result.metadata_props[:]
    # The quantizer drops the batch dimension's name; restore the shapes of the tensors that remain.
    remaining = {name for node in result.graph.node for name in node.output}
    result.graph.value_info.extend(
        value for value in model.graph.value_info if value.name in remaining
    )
    return result


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
        return isinstance(self.operand, gs.Constant) or (
            softmax and not self.form.has_steps
        )


def attention_products(graph: gs.Graph, contexts: Iterable[str]) -> list[gs.Node]:
    """Return both products of each attention that gives one of `contexts`, as `expand_attention` writes them."""
    tensors = graph.tensors()
    products = []
    for context in contexts:
        for name in (f"{context}/query_key", context):
            product = producer(tensors[name], "MatMul") if name in tensors else None
            if product is None:
                raise RuntimeError(f"no product gives {name}")
            products.append(product)
    return products


def slots_of(
    graph: gs.Graph,
    linear: Iterable[gs.Node],
    attention: Iterable[gs.Node],
    formats: Formats,
) -> list[Slot]:
    """Return the slots of linear layers and of products of attention, in the graph's order."""
    layers, products = ({id(node) for node in nodes} for nodes in (linear, attention))
    slots = []
    for node in graph.nodes:
        if id(node) in layers:
            slots.append(_slot(node, 0, formats.activations, formats))
            slots.append(Slot(node, 1, formats.weights))
        elif id(node) in products and formats.attention:
            query, softmax = formats.attention
            first = softmax if producer(node.inputs[0], "Softmax") else query
            slots.append(_slot(node, 0, first, formats))
            slots.append(_slot(node, 1, formats.weights, formats))
    return slots


def _slot(node: gs.Node, place: int, form: NumberFormat, formats: Formats) -> Slot:
    """Return the slot before the moves whose result has no other reader."""
    source = producer(node.inputs[place])
    while (
        source is not None
        and source.op in formats.moves
        and len(source.outputs[0].outputs) == 1
    ):
        node = source
        place = 0
        source = producer(node.inputs[place])
    return Slot(node, place, form)


def to_pairs(
    graph: gs.Graph, slots: Sequence[Slot], ranges: Mapping[str, Range]
) -> int:
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
        operand = slot.operand
        form = slot.form
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
    scale = np.maximum(np.abs(matrix).max(axis=0) / form.largest, LEAST_SCALE).astype(
        np.float32
    )
    zero = np.zeros(len(scale), form.dtype)
    shape = list(matrix.shape)
    result = op.DequantizeLinear(
        form.stored(matrix, scale), scale, zero, axis=1, name="dequantize", shape=shape
    )
    result.dtype = np.dtype(np.float32)
    return result


def _pair(
    op: Builder, tensor: gs.Variable, values: Range, form: NumberFormat
) -> gs.Variable:
    scale, zero_point = form.scale_of(values)
    step = np.array(scale, np.float32)
    zero = np.array(zero_point, form.dtype)
    quantized = op.QuantizeLinear(
        tensor, step, zero, name="quantize", shape=tensor.shape
    )
    quantized.dtype = form.dtype
    result = op.DequantizeLinear(
        quantized, step, zero, name="dequantize", shape=tensor.shape
    )
    result.dtype = np.dtype(np.float32)
    return result


def zero_points_into_biases(
    graph: gs.Graph, products: Iterable[gs.Node], moves: Collection[str]
) -> None:
    """Give what linear layers read the zero point 0, and take what that adds to their results from their biases.

    scale · (x − zero) · W is scale · x · W less one row. OpenVINO subtracts a zero point behind each product, in a
    step of its own; a bias is part of the product.
    """
    pairs: dict[str, gs.Node] = {}
    for node in products:
        pair = node.inputs[0].inputs[0]
        while pair.op in moves:
            pair = pair.inputs[0].inputs[0]
        scale, zero = (operand.values.astype(np.float64) for operand in pair.inputs[1:])
        stored, steps = node.inputs[1].inputs[0].inputs[:2]
        columns = stored.values.sum(axis=0, dtype=np.float64) * steps.values
        if zero:
            _add_to_bias(graph, node, -scale * zero * columns)
            pairs[pair.name] = pair
    for pair in pairs.values():
        zero = pair.inputs[2].values
        pair.inputs[2] = gs.Constant(f"{pair.name}/zero", np.zeros_like(zero))
    sort_nodes(graph)


def _add_to_bias(graph: gs.Graph, product: gs.Node, row: Array) -> None:
    """Add a row to the bias behind a product, which gets one where it has none."""
    result = product.outputs[0]
    add = result.outputs[0] if len(result.outputs) == 1 else None
    if add is not None and add.op == "Add" and isinstance(add.inputs[1], gs.Constant):
        bias = add.inputs[1].values
        if bias.shape == row.shape:
            shifted = (bias + row).astype(np.float32)
            add.inputs[1] = gs.Constant(f"{product.name}/bias", shifted)
            return
    product.outputs = [gs.Variable(f"{product.name}/sums", result.dtype, result.shape)]
    op = Builder(graph, prefix=product.name)
    biased = op.Add(product.outputs[0], row.astype(np.float32), name="bias")
    biased.inputs[0].outputs = [result]
