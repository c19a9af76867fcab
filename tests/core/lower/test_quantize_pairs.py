"""Pairs around the operands of products, the numbers of each format, and what FP8 leaves in higher precision."""

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx.reference import ReferenceEvaluator

from exporter.core.base.targets import OPENVINO_INT8, TENSORRT_FP8
from exporter.core.lower.graph import sort_nodes
from exporter.core.lower.number_formats import E4M3
from exporter.core.lower.quantize import (
    FORMS,
    attention_products,
    slots_of,
    to_pairs,
    zero_points_into_biases,
)
from tests.core.lower.graphs import (
    FP16,
    FP32,
    applied,
    graph_of,
    kinds_of,
    noise,
    operators,
)
from tests.core.lower.graphs import run as run_small
from tests.core.lower.models import (
    constants_in,
    lowered,
    lowered_anew,
    operators_in,
    results_in,
    star,
)
from tests.vits import random_images

FP8, PAIR = onnx.TensorProto.FLOAT8E4M3FN, "DequantizeLinear"
# A number of E4M3 has 4 significant bits, so it lies within 2⁻⁴ of the rounded one; below 2⁻⁶, within 2⁻¹⁰.
RELATIVE, SMALLEST = 2.0**-4, 2.0**-10


def small(matrix: np.ndarray) -> onnx.ModelProto:
    """A product of `x` [b, rows] with a matrix, and attention of it with itself, in FP8."""
    graph = graph_of(
        f"(float[b, {len(matrix)}] x) => (float[b, {matrix.shape[1]}] y, float[b, b] weights) {{ "
        "y = MatMul (x, w) turned = Transpose (y) logits = MatMul (y, turned) weights = Softmax (logits) "
        "mean = MatMul (weights, y) }",
        {"w": matrix},
        opset=20,
    )
    for name, node in zip(
        ("context_01/query_key", "context_01"),
        (graph.nodes[2], graph.nodes[4]),
        strict=True,
    ):
        node.outputs[0].name = name
    graph.outputs.append(
        graph.tensors()["context_01"].to_variable(np.float32, ["b", matrix.shape[1]])
    )
    attention = attention_products(graph, ["context_01"])
    assert [id(node) for node in attention] == [
        id(graph.nodes[place]) for place in (2, 4)
    ]
    slots = slots_of(graph, [graph.nodes[0]], attention, FORMS["fp8"])
    assert len(slots) == 6 and {slot.form for slot in slots} == {E4M3}
    ranges = {"x": (-4.0, 3.0), "y": (-2.0, 8.0), "turned": (-2.0, 8.0)}
    assert applied(lambda graph, _: to_pairs(graph, slots, ranges), graph) == 5
    model = gs.export_onnx(graph)
    model.ir_version = 10
    onnx.checker.check_model(model, full_check=True)
    # x, y, turned y and the weights; y has two readers
    assert operators(graph)["QuantizeLinear"] == 4
    return model


def test_the_numbers_of_onnx_s_own_definition() -> None:
    matrix, x = noise(5, 3), noise(4, 5)
    results = ReferenceEvaluator(small(matrix)).run(None, {"x": x})
    logits, weights, mean = (np.asarray(result) for result in results)

    def rounded(values: np.ndarray, largest: float | np.ndarray) -> np.ndarray:
        scale = np.float32(largest / E4M3.largest)
        clipped = np.clip(values / scale, -E4M3.largest, E4M3.largest)
        return clipped.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale

    y = rounded(x, 4.0) @ rounded(matrix, np.abs(matrix).max(axis=0))
    np.testing.assert_allclose(logits, y, atol=1e-5)
    powers = np.exp(rounded(y, 8.0) @ rounded(y, 8.0).T)
    expected = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(weights, expected, rtol=1e-3)
    np.testing.assert_allclose(
        mean, rounded(weights, 1.0) @ rounded(y, 8.0), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(
    ("form", "other", "before"),
    [
        ("qdq", "", "r"),
        ("qdq", "z = Neg (moved)", "moved"),
        ("fp8", "", "moved"),
        ("symmetric", "", "moved"),
    ],
)
def test_a_pair_for_openvino_lies_before_what_only_moves_values(
    form: str, other: str, before: str
) -> None:
    """Where nothing else reads the moved values, which stay floats for that."""
    graph = graph_of(
        "(float[4, b] x) => (float[b, 3] y) { r = Relu (x) turned = Transpose (r) moved = Reshape (turned, s) "
        f"y = MatMul (moved, w) {other} }}",
        {"w": noise(4, 3), "s": np.array([-1, 4])},
        opset=20,
    )
    (product,) = (node for node in graph.nodes if node.op == "MatMul")
    assert [
        slot.operand.name for slot in slots_of(graph, [product], [], FORMS[form])
    ] == [before, "w"]


@pytest.mark.parametrize("lost", ["context_01", "context_01/query_key"])
def test_an_attention_without_its_products_is_not_passed_over(lost: str) -> None:
    text = "(float[2, 2] x) => (float[2, 2] y) { a = MatMul (x, x) b = MatMul (a, x) y = Relu (b) }"
    graph = graph_of(text, opset=20)
    for tensor, name in {"a": "context_01/query_key", "b": "context_01"}.items():
        graph.tensors()[tensor].name = name if name != lost else tensor
    with pytest.raises(RuntimeError, match=f"no product gives {lost}$"):
        attention_products(graph, ["context_01"])


def for_tensorrt() -> onnx.ModelProto:
    return lowered(star(), TENSORRT_FP8, images=random_images(star().vit, 16).numpy())


@pytest.mark.ort
def test_linear_layers_and_attention_are_fp8() -> None:
    model, depth = for_tensorrt(), star().vit.spec.depth
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 20)]
    kinds, of = kinds_of(model), operators_in(model)
    # QKV, projection and both layers of the MLP; query, key, weights and value.
    assert of["QuantizeLinear"] == (4 + 4) * depth
    # Weights are stored in FP8: a matrix for query, key and value, one behind attention, two of the MLP.
    assert of["DequantizeLinear"] == of["QuantizeLinear"] + 4 * depth
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            assert {kinds[name] for name in node.input[:2]} == {FP16}
            assert kinds[node.output[0]] == FP8
        if node.op_type == "LayerNormalization":
            assert {kinds[name] for name in node.input} == {FP32}
    assert {kinds[name] for name in ("images", "logits")} == {FP32}
    produced = results_in(model)
    products = [node for node in model.graph.node if node.op_type == "MatMul"]
    exact = [
        node
        for node in products
        if {produced[n].op_type for n in node.input if n in produced} != {PAIR}
    ]
    assert len(products) == len(exact) + 6 * depth
    (classifier,) = exact
    assert kinds[classifier.output[0]] == FP16


@pytest.mark.ort
def test_the_softmax_has_e4m3_s_whole_range() -> None:
    model = for_tensorrt()
    values = constants_in(model)
    after = [
        each
        for each in model.graph.node
        if each.op_type == "QuantizeLinear" and "softmax" in each.input[0]
    ]
    assert len(after) == star().vit.spec.depth
    assert {float(values[node.input[1]]) for node in after} == {
        float(np.float16(1 / E4M3.largest))
    }


@pytest.mark.ort
def test_nothing_is_said_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    lowered_anew(star(), TENSORRT_FP8, images=random_images(star().vit, 4).numpy())
    assert capfd.readouterr().out == ""


@pytest.mark.ort
@pytest.mark.parametrize("bias", [True, False])
def test_biases_take_in_the_zero_points_of_activations(bias: bool) -> None:
    """Two products read the same pair, one of them behind what only moves values."""
    add = "y = Add (a, c)" if bias else "y = Identity (a)"
    text = (
        "(float[b, 4] x) => (float[b, 3] y, float[b, 3] z) {"
        f" a = MatMul (x, w) {add} m = Reshape (x, s) n = MatMul (m, w) z = Add (n, c) }}"
    )
    constants = {"w": noise(4, 3), "c": noise(3), "s": np.array([-1, 4])}
    x = noise(20, 4)
    results = []
    for moves in (None, FORMS["qdq"].moves):
        graph = graph_of(text, constants, opset=20)
        products = [node for node in graph.nodes if node.op == "MatMul"]
        slots = slots_of(graph, products, [], FORMS["qdq"])
        assert to_pairs(graph, slots, {"x": (-4.0, 3.0)}) == 2
        sort_nodes(graph.cleanup())
        if moves is not None:
            zero_points_into_biases(graph, products, moves)
        zeros = {
            node.op: int(node.inputs[2].values)
            for node in graph.nodes
            if node.op.endswith("Linear") and node.inputs[2].values.ndim == 0
        }
        assert zeros == {"QuantizeLinear": 146, PAIR: 146 if moves is None else 0}
        results.append(run_small(graph, x=x))
    for name in ("y", "z"):
        np.testing.assert_allclose(results[1][name], results[0][name], atol=1e-5)


def test_no_activation_of_a_linear_layer_has_a_zero_point_for_openvino() -> None:
    images = random_images(star().vit, 4).numpy()
    model = lowered(star(), OPENVINO_INT8, images=images)
    values = constants_in(model)
    zeros = {PAIR: set[int](), "QuantizeLinear": set[int]()}
    for node in model.graph.node:
        if node.op_type in zeros:
            zeros[node.op_type] |= set(values[node.input[2]].ravel().tolist())
    assert zeros[PAIR] == {0}
    assert len(zeros["QuantizeLinear"]) > 1
