"""Attention on heads again: the numbers of the node, and the names of its parts."""

import numpy as np
import pytest

from exporter.lowering.passes.expand_attention import expand_attention
from exporter.lowering.passes.split_heads import split_heads
from tests.lowering.graphs import applied, graph_of, noise, operators, run

QUERY, TOKENS = "float[b, 3, 6]", "float[b, 5, 6]"


@pytest.mark.ort
@pytest.mark.parametrize("mask", ["", ", m"])
def test_the_numbers_of_the_node(mask: str) -> None:
    graph = graph_of(
        f"({QUERY} q, {TOKENS} k, {TOKENS} v, bool[b, 1, 3, 5] m) => ({QUERY} y) "
        f"{{ context_01 = Attention <q_num_heads = 2, kv_num_heads = 2, scale = 0.7> (q, k, v{mask}) "
        "y = Neg (context_01) }"
    )
    if not mask:
        graph.inputs.pop()
    feed = {"q": noise(2, 3, 6), "k": noise(2, 5, 6), "v": noise(2, 5, 6)}
    if mask:
        feed["m"] = np.broadcast_to([True, True, False, True, False], (2, 1, 3, 5)).copy()
    expected = run(graph, **feed)["y"]
    assert applied(split_heads, graph) == 1
    assert operators(graph)["Attention"] == 1  # the marker, which has the same name
    applied(expand_attention, graph)
    names = {node.name for node in graph.nodes}
    assert {"context_01/query_key", "context_01/softmax", "context_01/weigh_value"} <= names
    np.testing.assert_allclose(run(graph, **feed)["y"], expected, atol=1e-5)


def test_attention_on_heads_is_left_to_other_passes() -> None:
    heads = "float[b, 2, 5, 3]"
    graph = graph_of(f"({heads} q, {heads} k, {heads} v) => ({heads} y) {{ y = Attention (q, k, v) }}")
    assert applied(split_heads, graph) == 0
