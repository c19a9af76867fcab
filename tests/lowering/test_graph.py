"""Writing nodes, finding and replacing them."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.graph import (
    Builder,
    as_linear,
    linear,
    markers,
    nodes_of,
    replace,
    sort_nodes,
)
from tests.lowering.graphs import graph_of, noise, run


def doubled() -> gs.Graph:
    return graph_of("(float[n, 4] x) => (float[n, 4] y) { y = Add(x, x) }")


@pytest.mark.ort
def test_it_writes_the_math_that_it_reads_as() -> None:
    graph, x = doubled(), noise(3, 4)
    op = Builder(graph, prefix="row")
    (y,) = graph.outputs
    graph.outputs = [op.Softmax(op.Mul(y, 0.5), axis=-1, shape=["n", 4])]
    expected = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(run(graph.toposort(), x=x)["row/softmax"], expected, rtol=1e-5)


def test_nodes_stand_before_the_one_given_and_in_order() -> None:
    graph = doubled()
    op = Builder(graph, graph.nodes[0], prefix="a")
    op.Neg(op.Abs(graph.inputs[0]))
    assert [node.op for node in graph.nodes] == ["Abs", "Neg", "Add"]


def test_names_are_the_prefix_and_what_is_said_or_the_operator() -> None:
    graph = doubled()
    op = Builder(graph, prefix="context_01")
    x = graph.inputs[0]
    results = [op.Mul(x, x, name="weigh"), op.Mul(x, x), op.Mul(x, x), op.Mul(x, x, out="context_01")]
    names = ["context_01/weigh", "context_01/mul", "context_01/mul_2", "context_01"]
    assert [each.name for each in results] == names
    assert [node.name for node in graph.nodes[1:]] == [*names[:3], "context_01/mul_3"]


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        (0.5, np.array(0.5, np.float32)),
        (3, np.array(3, np.int64)),
        ([1, 2], np.array([1, 2], np.int64)),
        (np.float64(2.0), np.array(2.0, np.float32)),
        (np.eye(2, dtype=np.float16), np.eye(2, dtype=np.float16)),
    ],
)
def test_numbers_become_constants(operand: float | list[int] | np.ndarray, expected: np.ndarray) -> None:
    graph = doubled()
    constant = Builder(graph, prefix="c").Identity(operand).inputs[0].inputs[0]
    assert constant.dtype == expected.dtype
    np.testing.assert_array_equal(constant.values, expected)


def test_dtypes_follow_from_the_operator_and_what_it_reads() -> None:
    graph = doubled()
    op, x = Builder(graph, prefix="d"), graph.inputs[0]
    chosen = op.Less(x, 0.0)
    assert op.Shape(x).dtype == np.int64
    assert chosen.dtype == bool
    assert op.Where(chosen, x, 0.0).dtype == np.float32
    assert op.Cast(x, to=onnx.TensorProto.FLOAT16).dtype == np.float16
    values, indices = op.several("TopK", x, [2], outs=("values", "indices"))
    assert (values.dtype, indices.dtype) == (np.float32, np.int64)
    parts = op.several("Split", x, outs=("a", "b", "c", "d"), num_outputs=4)
    assert [part.dtype for part in parts] == [np.float32] * 4
    assert op.Neg(gs.Variable("unknown")).dtype is None


def test_an_operator_that_onnx_does_not_have_is_refused() -> None:
    with pytest.raises(AttributeError, match="no operator Matmul"):
        Builder(doubled(), prefix="p").Matmul(1, 2)


LAYER = "(float[n, 3, 4] x) => (float[n, 3, 2] y) { p = MatMul(x, w) y = Add(p, b) }"


def test_a_linear_layer_is_found_with_its_bias() -> None:
    weight, bias = noise(4, 2), noise(2)
    graph = graph_of(LAYER, {"w": weight, "b": bias})
    found = as_linear(graph.outputs[0])
    assert found is not None and found.bias is not None
    np.testing.assert_array_equal(found.weight, weight)
    np.testing.assert_array_equal(found.bias, bias)
    assert found.tokens is graph.inputs[0]
    assert [node.op for node in found.nodes] == ["MatMul", "Add"]
    assert as_linear(found.tokens) is None


@pytest.mark.parametrize("shape", [(1,), (3, 2)])
def test_what_is_added_must_be_a_bias(shape: tuple[int, ...]) -> None:
    assert as_linear(graph_of(LAYER, {"w": noise(4, 2), "b": noise(*shape)}).outputs[0]) is None


@pytest.mark.ort
@pytest.mark.parametrize("biased", [True, False])
def test_what_is_written_as_a_linear_layer_is_found_as_one(biased: bool) -> None:
    graph, x = graph_of("(float[n, 3, 4] x) => (float[n, 3, 4] y) { y = Abs(x) }"), noise(2, 3, 4)
    weight, bias = noise(4, 2), noise(2) if biased else None
    op = Builder(graph, prefix="l")
    graph.outputs = [linear(op, graph.inputs[0], weight, bias, ["n", 3, 2])]
    found = as_linear(graph.outputs[0])
    assert found is not None and (found.bias is not None) == biased
    (result,) = run(graph.cleanup(), x=x).values()
    np.testing.assert_allclose(result, x @ weight + (bias if biased else 0), rtol=1e-5, atol=1e-6)


def test_one_node_takes_the_place_of_another_under_its_name() -> None:
    graph = graph_of("(float[n] x) => (float[n] z) { y = Abs(x) z = Neg(y) }")
    node, y = graph.nodes[0], graph.nodes[0].outputs[0]
    replace(graph, node, Builder(graph, node, prefix="new").Relu(graph.inputs[0]))
    assert [each.op for each in graph.nodes] == ["Relu", "Neg"]
    assert graph.nodes[0].outputs == [y] and y.name == "y"


@pytest.mark.ort
def test_several_results_take_the_place_of_several_and_may_be_read_meanwhile() -> None:
    """The second result is computed from the first, which is renamed under its reader."""
    graph = graph_of(
        "(float[n] x) => (float[n] y, float[n] z) { a, b, c = star.Some(x) y = Neg(a) z = Neg(b) }"
    )
    node = graph.nodes[0]
    op = Builder(graph, node, prefix="new")
    first = op.Abs(graph.inputs[0])
    second = op.Add(first, 1.0)
    node.outputs = node.outputs[:2]
    replace(graph, node, first, second)
    assert [each.op for each in graph.nodes] == ["Abs", "Add", "Neg", "Neg"]
    assert [each.outputs[0].name for each in graph.nodes] == ["a", "b", "y", "z"]
    assert graph.nodes[1].inputs[0] is graph.nodes[0].outputs[0]
    x = noise(3)
    results = run(graph, x=x)
    np.testing.assert_allclose(results["y"], -np.abs(x))
    np.testing.assert_allclose(results["z"], -np.abs(x) - 1)


def test_markers_are_no_operators_of_onnx() -> None:
    graph = graph_of("(float[n] x) => (float[n] z) { y = star.Attention(x) z = Attention(y, y, y) }")
    assert [node.outputs[0].name for node in markers(graph, "Attention")] == ["y"]
    assert [node.outputs[0].name for node in nodes_of(graph, "Attention")] == ["z"]


def test_nodes_are_sorted_beside_a_subgraph_and_a_function() -> None:
    """PyTorch 2.6 leaves branches in what it exports, and a retention is a function."""
    graph = graph_of(
        "(float[n] x, bool c) => (float[n] z) { y = star.Twice(x)"
        " z = If(c) <then_branch = yes () => (float[n] a) { a = Neg(y) },"
        " else_branch = no () => (float[n] b) { b = Abs(y) }> }"
    )
    graph.functions = [gs.Function("Twice", domain="star", nodes=[], inputs=[], outputs=[])]
    graph.nodes.reverse()
    assert [node.op for node in sort_nodes(graph).nodes] == ["Twice", "If"]


def test_nodes_that_are_sorted_keep_their_order() -> None:
    graph = graph_of(
        "(float[2] x) => (float[2] y, float[2] z) { a = Neg(x) b = Abs(a) y = Exp(b) c = Sign(x) z = Add(c, a) }"
    )
    order = ["Neg", "Abs", "Exp", "Sign", "Add"]
    graph.nodes = sorted(graph.nodes, key=lambda node: order.index(node.op))
    assert [node.op for node in sort_nodes(graph).nodes] == order
    graph.nodes.reverse()
    ops = [node.op for node in sort_nodes(graph).nodes]
    assert ops.index("Neg") < ops.index("Abs") < ops.index("Exp")
    assert max(ops.index("Sign"), ops.index("Neg")) < ops.index("Add")
