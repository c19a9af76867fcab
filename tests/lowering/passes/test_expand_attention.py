"""Attention and the class row in standard operators: the numbers of the formulas, and the names of the parts."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.expand_attention import expand_attention
from tests.lowering.graphs import applied, graph_of, noise, run

HEADS = "float[b, 2, 5, 3]"
SCALE = 0.7

pytestmark = pytest.mark.ort


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(*, masked: bool) -> gs.Graph:
    takes, reads = (", bool[b, 1, 1, 5] m", ", m") if masked else ("", "")
    return graph_of(
        f"({HEADS} q, {HEADS} k, {HEADS} v{takes}) => ({HEADS} context_01) "
        f"{{ context_01 = star.Attention <scale = {SCALE}> (q, k, v{reads}) }}"
    )


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked: bool) -> None:
    query, key, value = (noise(2, 2, 5, 3) for _ in "qkv")
    mask = np.array([[[[True, True, False, True, False]]], [[[True] * 5]]])
    graph = attention(masked=masked)
    assert applied(expand_attention, graph) == 1
    logits = SCALE * query @ key.swapaxes(2, 3)
    expected = softmax(np.where(mask, logits, -np.inf) if masked else logits) @ value
    feed = {"q": query, "k": key, "v": value, **({"m": mask} if masked else {})}
    np.testing.assert_allclose(run(graph, **feed)["context_01"], expected, rtol=1e-4, atol=1e-6)


def test_the_parts_have_the_names_that_an_audit_looks_for() -> None:
    graph = attention(masked=True)
    applied(expand_attention, graph)
    assert [(node.op, node.name) for node in graph.nodes] == [
        ("Mul", "context_01/scale_query"),
        ("Transpose", "context_01/turn_key"),
        ("MatMul", "context_01/query_key"),
        ("Where", "context_01/mask"),
        ("Softmax", "context_01/softmax"),
        ("MatMul", "context_01/weigh_value"),
    ]


@pytest.mark.parametrize("tokens", [1, 2])
def test_class_row(tokens: int) -> None:
    graph = graph_of(
        f"({HEADS} q, {HEADS} k) => (float[b, {2 * tokens}, 5] class_row_01) "
        f"{{ class_row_01 = star.ClassRow <scale = {SCALE}, num_class_tokens = {tokens}> (q, k) }}"
    )
    assert applied(expand_attention, graph) == 1
    query, key = noise(2, 2, 5, 3), noise(2, 2, 5, 3)
    expected = SCALE * np.einsum("bhrd,bhtd->bhrt", query[:, :, :tokens], key).reshape(2, 2 * tokens, 5)
    np.testing.assert_allclose(run(graph, q=query, k=key)["class_row_01"], expected, rtol=1e-4, atol=1e-6)
