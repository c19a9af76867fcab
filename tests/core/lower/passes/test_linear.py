"""The passes of linear layers."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.core.lower.passes.linear import (
    linear_as_gemm,
    patches_as_linear,
    split_gemm,
)
from tests.core.lower.graphs import applied, graph_of, noise, operators, run
from tests.core.lower.models import lowered, operators_of, star

WEIGHTS = {"w1": noise(4, 6), "b1": noise(6), "w2": noise(6, 2), "b2": noise(2)}
FIRST, LAST = "p = MatMul(x, w1) h = Add(p, b1)", "q = MatMul(g, w2) y = Add(q, b2)"
RESULT = "float[n, 3, 2] y"


def graph(between: str, outputs: str = RESULT, tokens: int | str = 3) -> gs.Graph:
    return graph_of(
        f"(float[n, {tokens}, 4] x) => ({outputs}) {{ {FIRST} {between} {LAST} }}",
        WEIGHTS,
    )


@pytest.mark.ort
@pytest.mark.parametrize(
    ("between", "outputs", "reshapes"),
    [
        ("g = Gelu(h)", RESULT, 2),
        ("t = Tanh(h) g = Relu(t)", RESULT, 2),
        ("g = Softmax(h)", RESULT, 4),  # not element-wise
        # read by something else
        ("g = Gelu(h) a = Abs(h)", f"{RESULT}, float[n, 3, 6] a", 4),
        ("g = Gelu(h) a = Abs(g)", f"{RESULT}, float[n, 3, 6] a", 4),
        ("s = Sigmoid(h) g = Mul(h, s)", RESULT, 4),
    ],
    ids=["one between", "two", "softmax", "result read", "activation read", "gate"],
)
def test_the_numbers_and_the_reshapes(
    between: str, outputs: str, reshapes: int
) -> None:
    one, other, x = graph(between, outputs), graph(between, outputs), noise(2, 3, 4)
    assert applied(linear_as_gemm, other) == 2
    counts = operators(other)
    assert (counts["Gemm"], counts["MatMul"], counts["Reshape"]) == (2, 0, reshapes)
    expected = run(one, x=x)
    for name, result in run(other, x=x).items():
        np.testing.assert_allclose(result, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.ort
def test_reshapes_that_others_wrote_stay_whatever_they_are_called() -> None:
    """Here three tokens become one: the names are those of the pass, the matrix is another."""
    text = (
        "(float[n, 3, 4] x) => (float[m, 2] y) {"
        " p = MatMul(x, w1) h = Add(p, b1)"
        " f = Reshape(h, flat) y = MatMul(f, w) }"
    )
    constants = {
        "w1": noise(4, 6),
        "b1": noise(6),
        "flat": np.array([-1, 18]),
        "w": noise(18, 2),
    }
    one, other, x = graph_of(text, constants), graph_of(text, constants), noise(2, 3, 4)
    for each in (one, other):
        for node in each.nodes:
            ending = "flatten" if node.op == "Reshape" else "unflatten"
            node.name = f"{node.outputs[0].name}/{ending}"
    assert applied(linear_as_gemm, other) == 1
    assert operators(other)["Reshape"] == 3
    np.testing.assert_allclose(
        run(other, x=x)["y"], run(one, x=x)["y"], rtol=1e-4, atol=1e-5
    )


def test_tokens_that_are_not_counted_are_left_alone() -> None:
    each = graph("g = Gelu(h)", "float[n, t, 2] y", tokens="t")
    assert applied(linear_as_gemm, each) == 0
    assert operators(each)["MatMul"] == 2


def test_linear_layers_take_a_matrix_and_an_mlp_stays_one() -> None:
    depth = star().vit.spec.depth
    gemm, plain = operators_of(), operators_of("linear_as_gemm")
    # query, projection, and two of the MLP
    assert gemm["Gemm"] - plain["Gemm"] == 4 * depth
    assert gemm["Reshape"] - plain["Reshape"] == 3 * 2 * depth
    graph = gs.import_onnx(lowered(star()))
    for node in (node for node in graph.nodes if node.op == "Gelu"):
        assert [node.inputs[0].inputs[0].op, node.outputs[0].outputs[0].op] == [
            "Gemm",
            "Gemm",
        ]


def gemm(bias: bool, **attributes: float) -> gs.Graph:
    shape = (6, 4) if attributes.get("transB") else (4, 6)
    told = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    reads = "x, weight, bias" if bias else "x, weight"
    return graph_of(
        f"(float[3, 4] x) => (float[3, 6] y) {{ y = Gemm {f'<{told}>' if told else ''} ({reads}) }}",
        {"weight": noise(*shape), **({"bias": noise(6)} if bias else {})},
        opset=20,
    )


@pytest.mark.ort
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "attributes", [{}, {"transB": 1}, {"alpha": 0.5, "beta": 2.0, "transB": 1}]
)
def test_the_numbers_stay(bias: bool, attributes: dict[str, float]) -> None:
    graph, x = gemm(bias, **attributes), noise(3, 4)
    expected = run(graph, x=x)["y"]
    assert applied(split_gemm, graph) == 1
    assert [node.op for node in graph.nodes] == ["MatMul", "Add"][: 1 + bias]
    np.testing.assert_allclose(run(graph, x=x)["y"], expected, rtol=1e-5, atol=1e-5)


def test_a_gemm_of_two_activations_is_left_alone() -> None:
    assert applied(split_gemm, gemm(bias=False, transA=1)) == 0


DIM, HEIGHT, WIDTH = 5, 8, 12


def embedding(
    patch: tuple[int, int] = (4, 3), bias: bool = True, **attributes: list[int]
) -> gs.Graph:
    """Conv, Reshape, Transpose, as the exporter writes them."""
    given = {"strides": list(patch), "pads": [0, 0, 0, 0], **attributes}
    told = ", ".join(f"{name} = {value}" for name, value in given.items())
    reads = "images, weight, bias" if bias else "images, weight"
    constants = {"weight": noise(DIM, 3, *patch), "shape": np.array([0, DIM, -1])}
    return graph_of(
        f"(float[b, 3, {HEIGHT}, {WIDTH}] images) => (float[b, n, {DIM}] tokens) {{"
        f" grid = Conv <{told}> ({reads}) flat = Reshape (grid, shape)"
        " tokens = Transpose <perm = [0, 2, 1]> (flat) }",
        constants | ({"bias": noise(DIM)} if bias else {}),
        opset=20,
    )


@pytest.mark.ort
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_same_tokens(batch: int, bias: bool) -> None:
    graph, images = embedding(bias=bias), noise(batch, 3, HEIGHT, WIDTH)
    expected = run(graph, images=images)["tokens"]
    assert applied(patches_as_linear, graph) == 1
    ops = [node.op for node in graph.nodes]
    assert "Conv" not in ops
    assert ops.count("MatMul") == 1
    assert ops.count("Add") == int(bias)
    np.testing.assert_allclose(
        run(graph, images=images)["tokens"], expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "graph",
    [
        embedding(strides=[2, 3]),
        embedding(pads=[1, 1, 1, 1]),
        embedding(dilations=[2, 1]),
        embedding(patch=(3, 3)),
    ],
    ids=["patches that overlap", "padding", "dilation", "a rest"],
)
def test_other_embeddings_are_left_alone(graph: gs.Graph) -> None:
    assert applied(patches_as_linear, graph) == 0
    assert graph.nodes[0].op == "Conv"
