"""The passes for WebGPU keep every value, and write what it lacks in operators that it has."""

from collections import Counter

import numpy as np
import pytest

from exporter.lowering.passes.webgpu import logic_as_sums, max_as_clip
from tests.lowering.graphs import applied, graph_of, noise, operators, run


def test_a_maximum_with_a_number_is_a_clip() -> None:
    text = "(float[b, 3] x) => (float[b, 3] y, float[b, 3] z) { y = Max(x, least) z = Max(x, y) }"
    graph = graph_of(text, {"least": np.array([0.25], np.float32)})
    feed = {"x": noise(4, 3)}
    expected = run(graph, **feed)
    assert applied(max_as_clip, graph) == 1
    for name, values in run(graph, **feed).items():
        np.testing.assert_array_equal(values, expected[name])
    assert operators(graph) == Counter({"Clip": 1, "Max": 1})


@pytest.mark.parametrize("shape", ["b, 1, 5", "1, 5, 1", "b, 5, 5"])
def test_logic_is_arithmetic_of_zeros_and_ones(shape: str) -> None:
    text = f"""(float[b, 5, 1] x, float[{shape}] z) => (bool[k, l, m] y, bool[k, l, m] w)
        {{ p = Less(x, low) q = Less(z, low) y = Or(p, q) r = And(p, q) w = And(r, marks) }}"""
    marks = np.arange(5) % 2 == 0
    graph = graph_of(
        text, {"low": np.array(0.3, np.float32), "marks": marks[None, None]}
    )
    sizes = [int(size.replace("b", "2")) for size in shape.split(", ")]
    feed = {"x": _rising(2, 5, 1), "z": _rising(*sizes)}
    expected = run(graph, **feed)
    assert applied(logic_as_sums, graph) == 3
    for name, values in run(graph, **feed).items():
        np.testing.assert_array_equal(values, expected[name])
        assert 0 < values.mean() < 1
    assert not {"And", "Or"} & operators(graph).keys()


def _rising(*shape: int) -> np.ndarray:
    """From −1 to 1, so that a comparison holds for some and not for others."""
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
