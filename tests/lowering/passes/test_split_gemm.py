"""Gemm as MatMul and Add, on the runtime."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.split_gemm import split_gemm
from tests.lowering.graphs import applied, noise, run


def gemm(bias: bool, **attributes: float) -> gs.Graph:
    shape = (6, 4) if attributes.get("transB") else (4, 6)
    constants = [gs.Constant("weight", noise(*shape))]
    if bias:
        constants.append(gs.Constant("bias", noise(6)))
    x, y = gs.Variable("x", np.float32, [3, 4]), gs.Variable("y", np.float32, [3, 6])
    return gs.Graph([gs.Node("Gemm", "linear", attributes, [x, *constants], [y])], [x], [y], opset=20)


@pytest.mark.ort
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("attributes", [{}, {"transB": 1}, {"alpha": 0.5, "beta": 2.0, "transB": 1}])
def test_the_numbers_stay(bias: bool, attributes: dict[str, float]) -> None:
    graph, x = gemm(bias, **attributes), noise(3, 4)
    expected = run(graph, x=x)["y"]
    assert applied(split_gemm, graph) == 1
    assert [node.op for node in graph.nodes] == ["MatMul", "Add"][: 1 + bias]
    np.testing.assert_allclose(run(graph, x=x)["y"], expected, rtol=1e-5, atol=1e-5)


def test_a_gemm_of_two_activations_is_left_alone() -> None:
    assert applied(split_gemm, gemm(bias=False, transA=1)) == 0
