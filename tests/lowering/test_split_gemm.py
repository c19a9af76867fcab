"""Gemm as MatMul and Add, on the runtime."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from exporter.artefact import Artefact
from exporter.lowering.passes.split_gemm import split_gemm
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import keep_everything
from exporter.targets import ONNXRUNTIME
from tests.vits import make_vit

RNG = np.random.default_rng(0)


def gemm(bias: bool, **attributes: float) -> gs.Graph:
    shape = (6, 4) if attributes.get("transB") else (4, 6)
    constants = [gs.Constant("weight", RNG.standard_normal(shape).astype(np.float32))]
    if bias:
        constants.append(gs.Constant("bias", RNG.standard_normal(6).astype(np.float32)))
    x, y = gs.Variable("x", np.float32, [3, 4]), gs.Variable("y", np.float32, [3, 6])
    return gs.Graph([gs.Node("Gemm", "linear", attributes, [x, *constants], [y])], [x], [y], opset=20)


def run(graph: gs.Graph, x: np.ndarray) -> np.ndarray:
    model = gs.export_onnx(graph)
    model.ir_version = 10
    onnx.checker.check_model(model)
    with OnnxRuntimeRunner(model.SerializeToString(), name="linear") as runner:
        return runner.run({"x": x})["y"]


@pytest.mark.ort
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("attributes", [{}, {"transB": 1}, {"alpha": 0.5, "beta": 2.0, "transB": 1}])
def test_the_numbers_stay(bias: bool, attributes: dict[str, float]) -> None:
    spec = make_vit().spec
    graph, x = gemm(bias, **attributes), RNG.standard_normal((3, 4)).astype(np.float32)
    expected = run(graph, x)
    assert split_gemm(graph, Artefact(spec, keep_everything(spec), ONNXRUNTIME)) == 1
    assert [node.op for node in graph.cleanup().toposort().nodes] == ["MatMul", "Add"][: 1 + bias]
    np.testing.assert_allclose(run(graph, x), expected, rtol=1e-5, atol=1e-5)


def test_a_gemm_of_two_activations_is_left_alone() -> None:
    spec = make_vit().spec
    graph = gemm(bias=False, transA=1)
    assert split_gemm(graph, Artefact(spec, keep_everything(spec), ONNXRUNTIME)) == 0
