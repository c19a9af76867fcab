"""The node builder: what it writes, where, under which names and dtypes."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.builder import Builder
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
