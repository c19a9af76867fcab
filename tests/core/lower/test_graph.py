"""Writing nodes, finding and replacing them."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.core.lower.graph import Builder, as_linear, sort_nodes
from tests.core.lower.graphs import graph_of, noise


def test_an_operator_that_onnx_does_not_have_is_refused() -> None:
    with pytest.raises(AttributeError, match="no operator Matmul"):
        Builder(gs.Graph(), prefix="p").Matmul(1, 2)


BIAS, WEIGHT = np.ones(2, np.float32), np.ones((4, 2), np.float32)


LAYER = "float[n, 3, 2] y) { p = MatMul(x, w) y = Add(p, b) }"


@pytest.mark.parametrize(
    ("text", "weight", "bias"),
    [
        (LAYER.replace("y = Add(p, b)", "q = Add(p, b) y = Add(q, b)"), WEIGHT, BIAS),
        (
            LAYER.replace("y)", "y, float[n, 3, 2] z)").replace(" }", " z = Abs(p) }"),
            WEIGHT,
            BIAS,
        ),
        (LAYER, WEIGHT[None], BIAS),
        (LAYER.replace("Add", "Mul"), WEIGHT, BIAS),
        (LAYER, WEIGHT, BIAS[:1]),
        (LAYER, WEIGHT, noise(3, 2)),
    ],
)
def test_what_is_no_linear_layer(
    text: str, weight: np.ndarray, bias: np.ndarray
) -> None:
    graph = graph_of(f"(float[n, 3, 4] x) => ({text}", {"w": weight, "b": bias})
    assert as_linear(graph.outputs[0]) is None


def test_nodes_are_sorted_beside_a_subgraph_and_a_function() -> None:
    """PyTorch 2.6 leaves branches in what it exports, and a retention is a function."""
    graph = graph_of(
        "(float[n] x, bool c) => (float[n] z) { y = star.Twice(x)"
        " z = If(c) <then_branch = yes () => (float[n] a) { a = Neg(y) },"
        " else_branch = no () => (float[n] b) { b = Abs(y) }> }"
    )
    graph.functions = [
        gs.Function("Twice", domain="star", nodes=[], inputs=[], outputs=[])
    ]
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
