"""Quantize linear layers, and for some runtimes attention, to INT8 or FP8, with a scale for each column of weights.

Norms, softmax, scores, the selection and the classifier stay in fp32.
"""

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.errors import MissingDependencyError, ModelError
from exporter.lowering.activation_ranges import activation_ranges
from exporter.lowering.graph import import_graph
from exporter.lowering.quantize_pairs import FORMS, attention_products, slots_of, to_pairs
from exporter.lowering.scoring import behind, scoring_nodes
from exporter.tensor_names import context_name

__all__ = ["QUANTIZATIONS", "quantized"]

# "dynamic": INT8 with ranges from the running batch. ONNX Runtime computes scale, product and bias in one kernel,
# faster than pairs. An image's answer depends, within the rounding, on the other images in its batch. Weights are
# INT7: unsigned ones of 8 bits do not saturate either, but ONNX Runtime 1.32 is slower with them on every CPU.
QUANTIZATIONS = ("dynamic", *FORMS)

# Declares that shapes are inferred; without it the quantizer warns that they may not be.
_PREPARED = ("onnx.quant.pre_process", "onnxruntime.quant")

Array = np.ndarray[Any, Any]


def quantized(model: onnx.ModelProto, artefact: Artefact, form: str, images: Array | None) -> onnx.ModelProto:
    """Return the model with linear layers, and where the form has it attention, in INT8 or FP8.

    Args:
        model: A lowered model in fp32, its linear layers as MatMul with a constant.
        artefact: Gives the layers that choose patches.
        form: One of QUANTIZATIONS.
        images: [n, 3, H, W] as the model takes them, to take ranges from; not for "dynamic".

    Raises:
        ModelError: There are no images to take ranges from.
        MissingDependencyError: ONNX Runtime is not installed.
    """
    graph = import_graph(model)
    products = list(_linear(graph, scoring_nodes(graph, artefact)))
    if not products:
        raise RuntimeError(f"{form}: no linear layer to quantize")
    if form == "dynamic":
        return _dynamic(model, sorted(node.name for node in products))
    if images is None or not len(images):
        got, need = "no images", "some to take the ranges of activations from"
        raise ModelError(artefact.target.precision.upper(), got, need, "give --images")
    contexts = [context_name(layer) for layer in artefact.spec.attention_layers]
    attention = attention_products(graph, contexts) if FORMS[form].attention else []
    slots = slots_of(graph, products, attention, FORMS[form])
    formats = {slot.operand.name: slot.form for slot in slots if not slot.has_range}
    to_pairs(graph, slots, activation_ranges(model, formats, images))
    return gs.export_onnx(graph)


def _linear(graph: gs.Graph, scoring: frozenset[int]) -> Iterator[gs.Node]:
    """Yield the products with a constant matrix, except those that score patches or give the outputs."""
    exact = scoring | {id(node) for node in behind(graph.outputs)}
    for node in graph.nodes:
        constant = node.op == "MatMul" and isinstance(node.inputs[1], gs.Constant)
        if constant and id(node) not in exact:
            yield node


def _dynamic(model: onnx.ModelProto, nodes: list[str]) -> onnx.ModelProto:
    quantization = _import_quantization()
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
        made = onnx.load(place)
    del made.graph.value_info[:], made.metadata_props[:]
    # The quantizer drops the batch dimension's name; restore the shapes of the tensors that remain.
    there = {name for node in made.graph.node for name in node.output}
    made.graph.value_info.extend(value for value in model.graph.value_info if value.name in there)
    return made


def _import_quantization() -> Any:
    try:
        return importlib.import_module("onnxruntime.quantization")
    except ImportError:
        raise MissingDependencyError("onnxruntime", "onnxruntime") from None
