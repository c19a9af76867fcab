"""The attention received and the dissimilarity in standard operators: the numbers of the operators of PyTorch."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest
import torch

from exporter.lowering.passes.expand_factors import expand_factors
from exporter.ops.dissimilarity import dissimilarity
from exporter.ops.received import received
from tests.lowering.graphs import applied, graph_of, noise, operators, run

pytestmark = pytest.mark.ort

SCALE = 0.7
BIAS = np.array([[0, 0, 0, 0, 0], [0.7, 0, 0.7, -np.inf, -np.inf]], dtype=np.float32)


def receiving(stride: int, *, biased: bool) -> gs.Graph:
    heads = "float[b, 3, 5, 4]"
    takes, reads = (", float[b, 5] z", ", z") if biased else ("", "")
    return graph_of(
        f"({heads} q, {heads} k{takes}) => (float[b, 5] factor_01) "
        f"{{ factor_01 = star.Received <scale = {SCALE}, stride = {stride}> (q, k{reads}) }}"
    )


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("bias", [None, BIAS])
def test_received(stride: int, bias: np.ndarray | None) -> None:
    graph = receiving(stride, biased=bias is not None)
    assert applied(expand_factors, graph) == 1
    # One product: the walk from a decision back to it keeps all else in fp32.
    assert operators(graph)["MatMul"] == 1
    assert operators(graph)["Slice"] == (0 if stride == 1 else 1 + (bias is not None))
    query, key = noise(2, 3, 5, 4), noise(2, 3, 5, 4)
    feed = {"q": query, "k": key, **({} if bias is None else {"z": bias})}
    got = run(graph, **feed)["factor_01"]
    given = None if bias is None else torch.from_numpy(bias)
    expected = received(torch.from_numpy(query), torch.from_numpy(key), given, SCALE, stride)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("packed", [False, True], ids=["by head", "as a projection gives it"])
@pytest.mark.parametrize("live", [None, np.array([[True] * 5, [True] * 3 + [False] * 2])])
def test_dissimilarity(live: np.ndarray | None, *, packed: bool) -> None:
    key = noise(2, 3, 5, 4)
    shape = "float[b, 5, 12]" if packed else "float[b, 3, 5, 4]"
    takes, reads = (", bool[b, 5] m", ", m") if live is not None else ("", "")
    graph = graph_of(
        f"({shape} k{takes}) => (float[b, 4] factor_01) "
        f"{{ factor_01 = star.Dissimilarity <num_prefix_tokens = 1> (k{reads}) }}"
    )
    assert applied(expand_factors, graph) == 1
    assert operators(graph)["MatMul"] == 0
    given = key.transpose(0, 2, 1, 3).reshape(2, 5, 12) if packed else key
    got = run(graph, k=given, **({} if live is None else {"m": live}))["factor_01"]
    expected = dissimilarity(torch.from_numpy(key), None if live is None else torch.from_numpy(live), 1)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_graph_without_them_is_left_as_it_is() -> None:
    graph = graph_of("(float[b, 5] x) => (float[b, 5] y) { y = Relu(x) }")
    assert applied(expand_factors, graph) == 0
