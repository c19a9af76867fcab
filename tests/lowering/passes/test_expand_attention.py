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


def attention(kind: str = "") -> gs.Graph:
    takes, reads = (f", {kind}[b, 1, 1, 5] m", ", m") if kind else ("", "")
    return graph_of(
        f"({HEADS} q, {HEADS} k, {HEADS} v{takes}) => ({HEADS} context_01) "
        f"{{ context_01 = star.Attention <scale = {SCALE}> (q, k, v{reads}) }}"
    )


KEYS = np.array([[[[True, True, False, True, False]]], [[[True] * 5]]])
BIAS = noise(2, 1, 1, 5)


@pytest.mark.parametrize(("kind", "mask"), [("", None), ("bool", KEYS), ("float", BIAS)])
def test_attention(kind: str, mask: np.ndarray | None) -> None:
    """A mask of booleans says which keys are read, one of floats is added to their logits."""
    query, key, value = (noise(2, 2, 5, 3) for _ in "qkv")
    graph = attention(kind)
    assert applied(expand_attention, graph) == 1
    logits = SCALE * query @ key.swapaxes(2, 3)
    if mask is not None:
        logits = np.where(mask, logits, -np.inf) if kind == "bool" else logits + mask
    expected = softmax(logits) @ value
    feed = {"q": query, "k": key, "v": value, **({} if mask is None else {"m": mask})}
    np.testing.assert_allclose(run(graph, **feed)["context_01"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kind", "operator"), [("bool", "Where"), ("float", "Add")])
def test_the_parts_have_the_names_that_an_audit_looks_for(kind: str, operator: str) -> None:
    graph = attention(kind)
    applied(expand_attention, graph)
    assert [(node.op, node.name) for node in graph.nodes] == [
        ("Mul", "context_01/scale_query"),
        ("Transpose", "context_01/turn_key"),
        ("MatMul", "context_01/query_key"),
        (operator, "context_01/mask"),
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
