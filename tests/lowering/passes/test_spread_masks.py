"""Masks for every query: what ONNX Runtime's Attention takes, and the same attention."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.spread_masks import spread_masks
from tests.lowering.graphs import applied, graph_of, noise, operators, run

TOKENS = "float[b, 5, 6]"


def attention(mask: str, kind: str = "bool") -> gs.Graph:
    return graph_of(
        f"(float[b, 3, 6] q, {TOKENS} k, {TOKENS} v, {kind}[b, 1, 1, 5] m) => (float[b, 3, 6] y) "
        f"{{ y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v{mask}) }}"
    )


@pytest.mark.ort
def test_the_mask_has_a_row_for_every_query() -> None:
    graph = attention(", m")
    assert applied(spread_masks, graph) == 1
    query, key, value = noise(2, 3, 6), noise(2, 5, 6), noise(2, 5, 6)
    mask = np.array([[[[True, True, False, True, False]]], [[[True] * 5]]])
    graph.outputs.append(graph.nodes[-1].inputs[3])
    graph.outputs[-1].shape = ["b", 1, 3, 5]
    results = run(graph, q=query, k=key, v=value, m=mask)
    np.testing.assert_array_equal(results["y/spread_mask"], np.broadcast_to(mask, (2, 1, 3, 5)))
    for image, kept in enumerate(mask[:, 0, 0]):
        less = attention("")
        less.inputs.pop()
        alone = run(less, q=query[image : image + 1], k=key[None, image], v=value[None, image])
        assert kept.all() == np.allclose(alone["y"], results["y"][image], atol=1e-5)


@pytest.mark.ort
def test_a_bias_has_a_row_for_every_query_too() -> None:
    """The logarithm of 2 at a key is that key twice."""
    graph = attention(", m", "float")
    assert applied(spread_masks, graph) == 1
    query, key, value = noise(1, 3, 6), noise(1, 5, 6), noise(1, 5, 6)
    bias = np.log(np.array([[[[1, 1, 2, 1, 1]]]], np.float32))
    twice = [0, 1, 2, 2, 3, 4]
    longer = graph_of(
        "(float[b, 3, 6] q, float[b, 6, 6] k, float[b, 6, 6] v) => (float[b, 3, 6] y) "
        "{ y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) }"
    )
    expected = run(longer, q=query, k=key[:, twice], v=value[:, twice])["y"]
    np.testing.assert_allclose(run(graph, q=query, k=key, v=value, m=bias)["y"], expected, atol=1e-5)


def test_without_a_mask_nothing_is_added() -> None:
    graph = attention("")
    assert applied(spread_masks, graph) == 0
    assert operators(graph) == {"Attention": 1}
