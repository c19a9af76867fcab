"""INT8: which layers, and what is left in fp32, or for TensorRT in fp16."""

import copy
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch

from exporter.core.base.errors import ModelError
from exporter.core.base.targets import (
    ONNXRUNTIME_INT8,
    OPENVINO_INT8,
    TENSORRT_FP8,
    TENSORRT_INT8,
    Target,
)
from exporter.core.base.vocabulary import Precision
from exporter.core.lower.number_formats import INT7, INT8, LEAST_SCALE, activations
from exporter.core.verify.openvino_runner import OpenVinoRunner
from exporter.core.verify.runners import runner_here
from exporter.engines.choice import why_not
from tests.core.lower.models import (
    a_star,
    constants_in,
    lowered,
    operators_in,
    results_in,
    skip_without,
    star,
)
from tests.exhaustive import also
from tests.openvino_nodes import executed
from tests.vits import random_images

pytestmark = pytest.mark.ort


@pytest.mark.parametrize(
    "target", [ONNXRUNTIME_INT8, OPENVINO_INT8, TENSORRT_INT8], ids=lambda t: t.name
)
def test_every_linear_layer_of_a_block_is_int8_and_the_numbers_close(
    target: Target,
) -> None:
    skip_without(target)
    pruned = star()
    images = random_images(pruned.vit, 16)
    model = lowered(pruned, target, images=images.numpy())
    operators = operators_in(model)
    product = "MatMulInteger" if target.quantization == "dynamic" else "QuantizeLinear"
    # ONNX Runtime's form has query, key and value apart; OpenVINO's has attention's four operands; TensorRT's keeps
    # the convolution of the patches.
    layers, embeddings = {
        "onnxruntime": (6, 1),
        "openvino": (4 + 4, 1),
        "tensorrt": (4, 0),
    }[target.runtime.name]
    assert operators[product] == layers * pruned.vit.spec.depth + embeddings
    assert operators["Conv"] == 1 - embeddings
    with torch.inference_mode():
        expected = pruned(images).numpy()
    with runner_here(model.SerializeToString(), target) as runner:
        logits = runner.run({"images": images.numpy()})["logits"]
    correlation = np.corrcoef(logits.ravel(), expected.ravel())[0, 1]
    assert correlation > 0.95


@pytest.mark.parametrize(
    ("target", "layout"),
    [
        (ONNXRUNTIME_INT8, ""),
        (OPENVINO_INT8, "padded"),
        also(ONNXRUNTIME_INT8, "padded"),
        also(OPENVINO_INT8, ""),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_no_sums_of_two_products_saturate_without_vnni(
    target: Target, layout: str
) -> None:
    """Such a CPU adds two products in 16 bits: weights, keys and values have 7 bits, in a file for any CPU."""
    pruned = a_star(layout=layout) if layout else star()
    images = random_images(pruned.vit, 16).numpy()
    model = lowered(pruned, replace(target, passes_after=()), images=images)
    weights, scales = _second_operands(model)
    assert len(weights) >= 4 * pruned.vit.spec.depth + 1
    assert len(scales) == 2 * pruned.vit.spec.depth * (target.quantization == "qdq")
    for weight in weights:
        assert (
            weight.dtype == np.int8 and np.abs(weight.astype(int)).max() <= INT7.largest
        )
    floats = replace(target, quantization="", precision=Precision.FP32, passes_after=())
    plain = lowered(pruned, floats)
    by_image = [*activations(plain, scales, images)] if scales else []
    for name, scale in scales.items():
        seconds = np.stack([values[name] for values in by_image])
        beyond = np.abs(seconds) > (INT7.largest + 0.5) * scale
        assert beyond.mean() < 1e-3  # what its range leaves out


def _second_operands(
    model: onnx.ModelProto,
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """What products have as second operands: integers of weights, and scales of activations by name."""
    values = constants_in(model)
    made = results_in(model)
    weights, scales = [], {}
    for product in model.graph.node:
        if product.op_type not in ("MatMul", "MatMulInteger"):
            continue
        name = product.input[1]
        while name in made and made[name].op_type in (
            "DequantizeLinear",
            "Transpose",
            "Reshape",
        ):
            name = made[name].input[0]
        if name in values and values[name].dtype != np.float32:
            weights.append(values[name])
        elif name in made and made[name].op_type == "QuantizeLinear":
            scales[made[name].input[0]] = values[made[name].input[1]]
    return weights, scales


def test_weights_have_a_scale_for_each_column() -> None:
    model = lowered(star(), ONNXRUNTIME_INT8)
    values = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":
            weight, zero_point = values[node.input[1]], values[node.input[3]]
            assert weight.data_type == onnx.TensorProto.INT8
            assert list(zero_point.dims) == [weight.dims[1]]


@pytest.mark.parametrize("layout", ["", "padded"])
def test_openvino_computes_attention_in_int8(layout: str) -> None:
    """Its fused kernel takes no zero point; a softmax has steps for its own values, not for all up to 1."""
    if reason := why_not(OPENVINO_INT8):
        pytest.skip(reason)
    pruned = a_star(layout=layout) if layout else star()
    model = lowered(pruned, OPENVINO_INT8, images=random_images(pruned.vit, 16).numpy())
    values = constants_in(model)
    made = results_in(model)

    def pair(tensor: str) -> tuple[np.ndarray, np.ndarray]:
        """The scale and the zero point of an operand's pair, which lies before the operators that move values."""
        node = made[tensor]
        if node.op_type in ("Reshape", "Transpose"):
            return pair(node.input[0])
        assert node.op_type == "DequantizeLinear"
        return values[node.input[1]], values[node.input[2]]

    products = {
        node.name: [pair(name) for name in node.input]
        for node in model.graph.node
        if _weighs(node)
    }
    assert len(products) == 2 * pruned.vit.spec.depth
    zeros = {
        name: [(str(zero.dtype), int(zero)) for _, zero in pairs]
        for name, pairs in products.items()
    }
    for layer in range(1, pruned.vit.spec.depth + 1):
        assert zeros[f"context_{layer:02d}/query_key"] == [("int8", 0)] * 2
        assert zeros[f"context_{layer:02d}/weigh_value"] == [("uint8", 0), ("int8", 0)]
        assert products[f"context_{layer:02d}/weigh_value"][0][0] < 1 / 255
    with OpenVinoRunner(model.SerializeToString(), threads=1) as runner:
        ran = executed(runner)
    # Without VNNI both products are nodes of their own.
    depth, apart = pruned.vit.spec.depth, (ran["MatMul", "i8"], ran["MatMul", "u8"])
    assert ran["Subgraph", "i8"] == depth or apart == (depth, depth), ran


def _weighs(node: onnx.NodeProto) -> bool:
    return node.name.startswith("context_") and node.name.endswith(
        ("query_key", "weigh_value")
    )


@pytest.mark.parametrize(
    "target",
    [OPENVINO_INT8, TENSORRT_INT8, TENSORRT_FP8],
    ids=lambda target: target.name,
)
def test_ranges_need_images(target: Target) -> None:
    message = rf"{target.precision.upper()} \| got no images \| need some .*--images"
    with pytest.raises(ModelError, match=message):
        lowered(star(), target)


def for_tensorrt(family: str = "vit") -> onnx.ModelProto:
    pruned = star(family)
    return lowered(pruned, TENSORRT_INT8, images=random_images(pruned.vit, 8).numpy())


def test_scales_of_tiny_weights_are_not_zero_in_fp16() -> None:
    pruned = copy.deepcopy(star())
    with torch.no_grad():
        weight = pruned.vit.model.get_parameter("blocks.0.mlp.fc1.weight")
        weight[:2] = torch.tensor([[1e-7], [0.0]])
    model = lowered(pruned, TENSORRT_INT8, images=random_images(pruned.vit, 8).numpy())
    values = constants_in(model)
    scales = [
        values[node.input[1]]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear"
    ]
    assert scales and min(scale.min() for scale in scales) >= LEAST_SCALE


@pytest.mark.parametrize("family", ["vit", "lvvit"])
def test_tensorrt_gets_symmetric_pairs_in_standard_operators(family: str) -> None:
    model = for_tensorrt(family)
    assert [
        (opset.domain, opset.version)
        for opset in model.opset_import
        if opset.domain != ""
    ] == []
    values = constants_in(model)
    weights = 0
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale, zero_point = (values[name] for name in node.input[1:])
            assert zero_point.dtype == np.int8 and not zero_point.any()
            # a weight: stored in INT8, a scale for each column
            if node.input[0] in values:
                assert values[node.input[0]].dtype == np.int8
                assert np.abs(values[node.input[0]]).max() == INT8.largest
                assert scale.shape == values[node.input[0]].shape[1:]
                weights += 1
            else:
                assert scale.ndim == 0
    pairs = sum(node.op_type == "QuantizeLinear" for node in model.graph.node)
    assert weights == pairs  # one of tokens for each product
    # biases stay floats
    assert not [name for name, value in values.items() if value.dtype == np.int32]
