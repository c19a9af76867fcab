"""The words of opset 17: ONNX's checker knows what an operator was then."""

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs
import pytest
import torch

from exporter.lowering.passes.opset_17 import opset_17
from tests.lowering.graphs import applied, graph_of, noise, run

pytestmark = pytest.mark.ort


def gelu(approximate: str) -> gs.Graph:
    return graph_of(
        f'(float[n] x) => (float[n] y) {{ y = Gelu <approximate = "{approximate}"> (x) }}', opset=20
    )


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    graph = gelu(approximate)
    assert applied(opset_17, graph) == 1
    assert graph.opset == 17
    x = np.linspace(-6, 6, 64, dtype=np.float32)
    expected = torch.nn.functional.gelu(torch.from_numpy(x), approximate=approximate).numpy()
    np.testing.assert_allclose(run(graph, x=x)["y"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "expected"), [("ReduceMean", np.mean), ("ReduceMax", np.max), ("ReduceMin", np.min)]
)
def test_axes_are_an_attribute(operator: str, expected: Callable[..., np.ndarray]) -> None:
    text = f"(float[n, 3, 4] x) => (float[n, 4] y) {{ y = {operator} <keepdims = 0> (x, axes) }}"
    graph, x = graph_of(text, {"axes": np.array([1])}, opset=20), noise(2, 3, 4)
    assert applied(opset_17, graph) == 1
    assert graph.nodes[0].attrs["axes"] == [1]
    np.testing.assert_allclose(run(graph, x=x)["y"], expected(x, axis=1), rtol=1e-5, atol=1e-6)


def test_equal_parts_are_not_counted() -> None:
    text = (
        "(float[n, 4] x) => (float[n, 2] a, float[n, 2] b) { a, b = Split <axis = 1, num_outputs = 2> (x) }"
    )
    graph, x = graph_of(text, opset=20), noise(2, 4)
    assert applied(opset_17, graph) == 1
    np.testing.assert_array_equal(run(graph, x=x)["b"], x[:, 2:])


def test_what_was_written_alike_stays() -> None:
    graph = graph_of("(float[n] x) => (float[n] y) { y = Add(x, x) }", opset=20)
    assert applied(opset_17, graph) == 0
    assert graph.opset == 17
