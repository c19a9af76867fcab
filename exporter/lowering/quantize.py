"""Quantize linear layers to INT8 with ONNX Runtime's quantizer, or to FP8, with a scale for each column of weights.

Norms, scores, the selection and the classifier stay in fp32; under INT8, attention too.
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
from exporter.lowering.graph import import_graph
from exporter.lowering.quantize_fp8 import attention_products, to_fp8
from exporter.lowering.scoring import behind, scoring_nodes
from exporter.tensor_names import IMAGES, context_name

__all__ = ["QUANTIZATIONS", "quantized"]

# "dynamic": ranges of activations from the running batch. ONNX Runtime computes scale, product and bias in one
# kernel, faster than pairs. An image's answer depends, within the rounding, on the other images in its batch.
# "qdq": ranges from images, in pairs of QuantizeLinear and DequantizeLinear, the form of INT8 that OpenVINO reads.
# "symmetric": the same with a zero point of 0 everywhere, the only one that TensorRT supports.
# "fp8": ranges from images, in pairs of E4M3, also around the products of attention (`quantize_fp8`).
QUANTIZATIONS = ("dynamic", "qdq", "symmetric", "fp8")

# Scales are stored in fp16 where the rest is: one below 2⁻²⁵ would become 0, and one below 2⁻¹⁷ would lose more of
# its digits than rounding to INT8 does. A column of smaller weights has at least this scale, and fewer digits.
LEAST_SCALE = 2.0**-17
# The range of values that 255 steps of this scale cover.
LEAST_RANGE = 255 * LEAST_SCALE

# Images per run of the calibration.
_BATCH = 8
# Declares that shapes are inferred; without it the quantizer warns that they may not be.
_PREPARED = ("onnx.quant.pre_process", "onnxruntime.quant")

Array = np.ndarray[Any, Any]


def quantized(model: onnx.ModelProto, artefact: Artefact, form: str, images: Array | None) -> onnx.ModelProto:
    """Return the model with INT8 linear layers, or with FP8 linear layers and attention.

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
    nodes = sorted(_linear(graph, scoring_nodes(graph, artefact)))
    prepared = onnx.shape_inference.infer_shapes(model)
    onnx.helper.set_model_props(prepared, dict([_PREPARED]))
    if form == "fp8":
        contexts = [context_name(layer) for layer in artefact.spec.attention_layers]
        nodes += attention_products(graph, contexts)
        to_fp8(graph, nodes, _ranges(prepared, _checked(images, "FP8")), LEAST_SCALE)
        return gs.export_onnx(graph)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "quantized.onnx"
        if form == "dynamic":
            _dynamic(prepared, nodes, place)
        else:
            _static(prepared, nodes, _checked(images, "INT8"), place, symmetric=form == "symmetric")
        made = onnx.load(place)
    del made.graph.value_info[:], made.metadata_props[:]
    # The quantizer drops the batch dimension's name; restore the shapes of the tensors that remain.
    there = {name for node in made.graph.node for name in node.output}
    made.graph.value_info.extend(value for value in model.graph.value_info if value.name in there)
    return made


def _linear(graph: gs.Graph, scoring: frozenset[str]) -> Iterator[str]:
    """Yield the names of products with a constant matrix, except those that score patches or give the outputs."""
    last = {node.name for node in behind(graph.outputs)}
    for node in graph.nodes:
        constant = node.op == "MatMul" and isinstance(node.inputs[1], gs.Constant)
        if constant and node.name not in scoring | last:
            yield node.name


def _checked(images: Array | None, precision: str) -> Array:
    if images is None or not len(images):
        raise ModelError(
            precision, "no images", "some to take the ranges of activations from", "give --images"
        )
    return images


def _ranges(model: onnx.ModelProto, images: Array) -> dict[str, float]:
    """Return the largest magnitude of each operand and result of a product, over all images."""
    quantization = _import_quantization()
    calibrate = importlib.import_module("onnxruntime.quantization.calibrate")
    with tempfile.TemporaryDirectory() as folder:
        place, augmented = Path(folder) / "model.onnx", Path(folder) / "augmented.onnx"
        onnx.save(model, place)
        calibrator = calibrate.create_calibrator(place, ["MatMul"], str(augmented))
        calibrator.collect_data(_reader(quantization, images))
        found = calibrator.compute_data()
    return {name: float(np.abs(each.range_value).max()) for name, each in found.items()}


def _reader(quantization: Any, images: Array) -> Any:
    """Return the images as ONNX Runtime's calibration reads them."""

    class Images(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = iter(np.array_split(images, -(-len(images) // _BATCH)))

        def get_next(self) -> dict[str, Array] | None:
            batch = next(self._batches, None)
            return None if batch is None else {IMAGES: batch}

    return Images()


def _static(model: onnx.ModelProto, nodes: list[str], images: Array, place: Path, *, symmetric: bool) -> None:
    quantization = _import_quantization()
    quantization.quantize_static(
        model,
        place,
        _reader(quantization, images),
        quant_format=quantization.QuantFormat.QDQ,
        op_types_to_quantize=["MatMul"],
        nodes_to_quantize=nodes,
        per_channel=True,
        activation_type=quantization.QuantType.QInt8 if symmetric else quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        # The result of a linear layer goes into a sum, an attention or a GELU, which are fp32.
        extra_options={
            "OpTypesToExcludeOutputQuantization": ["MatMul"],
            "ActivationSymmetric": symmetric,
            "MinimumRealRange": LEAST_RANGE,
        },
    )


def _dynamic(model: onnx.ModelProto, nodes: list[str], place: Path) -> None:
    quantization = _import_quantization()
    quantization.quantize_dynamic(
        model,
        place,
        op_types_to_quantize=["MatMul"],
        nodes_to_quantize=nodes,
        per_channel=True,
        weight_type=quantization.QuantType.QInt8,
    )


def _import_quantization() -> Any:
    try:
        return importlib.import_module("onnxruntime.quantization")
    except ImportError:
        raise MissingDependencyError("onnxruntime", "onnxruntime") from None
