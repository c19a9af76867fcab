"""What packed tokens become in standard operators, against a loop over images."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.lowering.passes.expand_packing import expand_packing
from tests.lowering.graphs import applied, graph_of, run
from tests.ops.packing_reference import drawn_choice, packed

pytestmark = pytest.mark.ort

COMMON = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def packing(prefix: int) -> gs.Graph:
    return graph_of(
        "(int64[b, t] before, int64[b, k] index, int64[b] count)"
        " => (int64[n] rows, bool[b, s] live, int64[b, s] slots, int64[n] places) {"
        f" rows, live, slots, places = star.PackTokens <num_prefix_tokens = {prefix}> (before, index, count) }}"
    )


def compare(graph: gs.Graph, seed: int, prefix: int) -> None:
    slots, index, count = drawn_choice(np.random.default_rng(seed), prefix)
    found = run(graph, before=slots, index=index, count=count)
    for name, expected in packed(slots, index, count, prefix)._asdict().items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


@COMMON
@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_in_standard_operators(seed: int, prefix: int) -> None:
    graph = packing(prefix)
    assert applied(expand_packing, graph) == 1
    compare(graph, seed, prefix)
