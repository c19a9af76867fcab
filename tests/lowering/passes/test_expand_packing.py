"""What packed tokens become in standard operators, against a loop over images."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.lowering.passes.expand_packing import expand_packing
from tests.lowering.graphs import applied, graph_of, operators, run
from tests.ops.packing_reference import drawn_choice, packed

pytestmark = pytest.mark.ort

OUTPUTS = ("rows", "live", "slots", "places")
COMMON = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def packing(prefix: int) -> gs.Graph:
    return graph_of(
        "(int64[b, t] before, int64[b, k] index, int64[b] count)"
        " => (int64[n] rows, bool[b, s] live, int64[b, s] slots, int64[n] places) {"
        f" rows, live, slots, places = star.PackTokens <num_prefix_tokens = {prefix}> (before, index, count) }}"
    )


def compare(graph: gs.Graph, seed: int, prefix: int) -> dict[str, np.ndarray]:
    slots, index, count = drawn_choice(np.random.default_rng(seed), prefix)
    found = run(graph, before=slots, index=index, count=count)
    for name, expected in packed(slots, index, count, prefix)._asdict().items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
    return found


@COMMON
@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_in_standard_operators(seed: int, prefix: int) -> None:
    graph = packing(prefix)
    assert applied(expand_packing, graph) == 1
    compare(graph, seed, prefix)


@COMMON
@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_with_the_number_of_tokens_before_each_image(seed: int, prefix: int) -> None:
    """Without a cumulative sum, which TensorRT has of floats alone."""
    graph = packing(prefix)
    lengths = gs.Variable("lengths", np.int64, ["ends"])
    graph.nodes[0].outputs.append(lengths)
    graph.outputs.append(lengths)
    assert applied(expand_packing, graph) == 1
    assert "CumSum" not in operators(graph)
    found = compare(graph, seed, prefix)
    own = found["live"].sum(axis=1)
    assert found["lengths"].tolist() == [0, *own.cumsum()]
