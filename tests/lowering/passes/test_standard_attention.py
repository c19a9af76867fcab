"""Attention as ONNX's own node: the numbers of the primitive form, and the name that an audit looks for."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.expand_attention import expand_attention
from exporter.lowering.passes.spread_masks import spread_masks
from exporter.lowering.passes.standard_attention import standard_attention
from exporter.tensor_names import POOLING
from tests.lowering.graphs import applied, graph_of, noise, operators, run

HEADS = "float[b, 2, 5, 3]"


def attention(kind: str = "", name: str = "context_01") -> gs.Graph:
    takes, reads = (f", {kind}[b, 1, 1, 5] m", ", m") if kind else ("", "")
    return graph_of(
        f"({HEADS} q, {HEADS} k, {HEADS} v{takes}) => ({HEADS} {name}) "
        f"{{ {name} = star.Attention <scale = 0.7> (q, k, v{reads}) }}"
    )


@pytest.mark.ort
@pytest.mark.parametrize("kind", ["", "bool", "float"])
def test_it_computes_what_the_primitive_form_does(kind: str) -> None:
    feed = {each: noise(2, 2, 5, 3) for each in "qkv"}
    if kind:
        mask = noise(2, 1, 1, 5)
        feed["m"] = mask > -1 if kind == "bool" else mask
    one, parts = attention(kind), attention(kind)
    assert applied(standard_attention, one) == 1
    assert (one.nodes[-1].op, one.nodes[-1].name) == ("Attention", "context_01/attention")
    applied(spread_masks, one)
    applied(expand_attention, parts)
    as_one, in_parts = (run(graph, **feed)["context_01"] for graph in (one, parts))
    np.testing.assert_allclose(as_one, in_parts, rtol=1e-4, atol=1e-6)


def test_a_pooling_head_is_left_to_a_later_pass() -> None:
    graph = attention(name=POOLING)
    assert applied(standard_attention, graph) == 0
    assert [node.domain for node in graph.nodes] == ["star"]
    assert applied(expand_attention, graph) == 1
    assert "Attention" not in operators(graph)
