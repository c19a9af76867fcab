"""The passes of half precision, uint8 pixels and opset 17."""

import numpy as np
import onnx
import pytest
import torch

from exporter.core.base.targets import (
    ONNXRUNTIME_FP16,
    TENSORRT_FP16,
    Target,
)
from exporter.core.lower.passes.precision import (
    AXES_INPUT_SINCE_18,
    OPSET,
    opset_17,
    to_bf16,
    to_fp16,
    uint8_input,
)
from exporter.core.lower.pipeline import lower
from tests.core.lower import graphs
from tests.core.lower.graphs import (
    FP16,
    FP32,
    RNG,
    applied,
    artefact,
    graph_of,
    kinds_of,
    noise,
    operators,
    run,
)
from tests.core.lower.models import lowered, pruned_of, star
from tests.vits import make_vit

BOTH = pytest.mark.parametrize(
    "target", [ONNXRUNTIME_FP16, TENSORRT_FP16], ids=["fused", "primitive"]
)


@BOTH
def test_norms_are_fp32_and_matrices_fp16(target: Target) -> None:
    model = lowered(star(), target)
    kinds = kinds_of(model)
    norms = [
        node.output[0]
        for node in model.graph.node
        if node.op_type == "LayerNormalization"
    ]
    assert {kinds[name] for name in (*norms, "images", "logits")} == {FP32}
    matrices = [
        t for t in model.graph.initializer if len(t.dims) == 2 and min(t.dims) >= 32
    ]
    assert {tensor.data_type for tensor in matrices} == {FP16}


@pytest.mark.ort
def test_weights_out_of_range_stay_finite() -> None:
    vit = make_vit()
    with torch.no_grad():
        vit.model.get_parameter("head.weight")[0, 0] = 1e6
    model = lower(pruned_of(vit), ONNXRUNTIME_FP16)
    for tensor in model.graph.initializer:
        assert np.isfinite(
            onnx.numpy_helper.to_array(tensor).astype(np.float64)
        ).all(), tensor.name


@pytest.mark.ort
def test_a_cast_on_every_edge_between_two_precisions_and_one_for_all_that_read_it() -> (
    None
):
    text = (
        "(float[n, 4] x) => (float[n, 2] y, float[n, 2] z) {"
        " h = LayerNormalization(x, s) a = MatMul(h, w) b = MatMul(h, w) y = Abs(a) z = Neg(b) }"
    )
    graph, x = graph_of(text, {"s": noise(4), "w": noise(4, 2)}), noise(3, 4)
    expected = graphs.run(graph.copy(), x=x)
    assert applied(to_fp16, graph) == 4  # both products, and what is made of them
    assert operators(graph)["Cast"] == 3  # the norm's result, once, and two outputs
    tensors = graph.tensors()
    assert [tensors[name].dtype for name in ("x", "h", "a", "y")] == [
        np.float32,
        np.float32,
        np.float16,
        np.float32,
    ]
    for name, result in graphs.run(graph, x=x).items():
        np.testing.assert_allclose(result, expected[name], rtol=1e-2, atol=1e-2)


def test_a_tensor_without_a_dtype_is_not_passed_over() -> None:
    graph = graph_of("(float[n] x) => (float[n] z) { y = star.Unknown(x) z = Abs(y) }")
    with pytest.raises(RuntimeError, match="no dtype is known of y"):
        to_fp16(graph, artefact())


def test_what_leads_to_the_survivors_stays_fp32() -> None:
    text = (
        "(float[n, 8, 4] x) => (int64[n, 2] i, float[n, 8, 2] y) {"
        " m = MatMul(x, w) y = Abs(m) r = ReduceSum <keepdims = 0> (m, axis)"
        " v, i = TopK <axis = 1> (r, k) }"
    )
    graph = graph_of(
        text, {"w": noise(4, 2), "axis": np.array([2]), "k": np.array([2])}
    )
    for node in graph.nodes:
        node.name = node.outputs[0].name
    graph.outputs[0].name = "keep_01"
    applied(to_bf16, graph, artefact(1))
    dtypes = {
        node.op: node.outputs[0].dtype for node in graph.nodes if node.op != "Cast"
    }
    assert dtypes["MatMul"] == dtypes["ReduceSum"] == dtypes["TopK"] == np.float32
    assert dtypes["Abs"].name == "bfloat16"


@pytest.mark.ort
def test_pixels_are_normalised_in_the_graph() -> None:
    graph = graph_of(
        "(float[b, 3, 4, 4] images) => (float[b, 3, 4, 4] y) { twice = Add(images, images) y = Abs(twice) }"
    )
    pixels = RNG.integers(0, 256, (2, 3, 4, 4), dtype=np.uint8)
    preprocessing = artefact().spec.preprocessing
    mean, std = (
        np.reshape(each, (3, 1, 1)) for each in (preprocessing.mean, preprocessing.std)
    )
    assert applied(uint8_input, graph) == 2  # the sum reads them twice
    assert [(tensor.name, tensor.dtype) for tensor in graph.inputs] == [
        ("images", np.uint8)
    ]
    assert [node.op for node in graph.nodes][:4] == ["Cast", "Div", "Sub", "Div"]
    expected = np.abs(2 * ((pixels / 255) - mean) / std)
    np.testing.assert_allclose(
        run(graph, images=pixels)["y"], expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.ort
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    text = f'(float[n] x) => (float[n] y) {{ y = Gelu <approximate = "{approximate}"> (x) }}'
    graph = graph_of(text, opset=20)
    assert applied(opset_17, graph) == 1
    assert graph.opset == 17
    x = np.linspace(-6, 6, 64, dtype=np.float32)
    expected = torch.nn.functional.gelu(
        torch.from_numpy(x), approximate=approximate
    ).numpy()
    np.testing.assert_allclose(run(graph, x=x)["y"], expected, atol=1e-6)


@pytest.mark.ort
@pytest.mark.parametrize("operator", sorted(AXES_INPUT_SINCE_18))
def test_axes_are_an_attribute(operator: str) -> None:
    text = f"(float[n, 3, 4] x) => (float[n, 4] y) {{ y = {operator} <keepdims = 0> (x, axes) }}"
    graph, x = graph_of(text, {"axes": np.array([1])}, opset=20), np.abs(noise(2, 3, 4))
    expected = run(graph.copy(), x=x)["y"]
    assert applied(opset_17, graph) == 1
    assert graph.nodes[0].attrs["axes"] == [1]
    np.testing.assert_allclose(run(graph, x=x)["y"], expected, rtol=1e-5, atol=1e-6)


def test_every_reduction_whose_axes_became_an_input_is_rewritten() -> None:
    """Read from ONNX's own schemas."""
    reductions = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if schema.name.startswith("Reduce") and schema.since_version >= OPSET
    }
    before = {name: onnx.defs.get_schema(name, OPSET) for name in reductions}
    assert {
        name for name, schema in before.items() if len(schema.inputs) == 1
    } == AXES_INPUT_SINCE_18


@pytest.mark.ort
def test_equal_parts_are_not_counted() -> None:
    text = "(float[n, 4] x) => (float[n, 2] a, float[n, 2] b) { a, b = Split <axis = 1, num_outputs = 2> (x) }"
    graph, x = graph_of(text, opset=20), noise(2, 4)
    assert applied(opset_17, graph) == 1
    np.testing.assert_array_equal(run(graph, x=x)["b"], x[:, 2:])
