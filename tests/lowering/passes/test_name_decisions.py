"""Names of decisions: layers are counted from 1, and only those that prune have a decision."""

import pytest

from exporter.lowering.decisions import name_decisions
from tests.lowering.graphs import applied, artefact, graph_of


def test_pruning_layers_name_their_decisions_and_every_layer_its_attention() -> None:
    of = artefact(2)
    blocks = [f"c{layer} = star.Attention(q, q, q)" for layer in range(1, of.spec.depth + 1)]
    blocks.insert(
        2, "r = star.ClassRow(q, q) k = star.KeepTopK <k = 8> (r) t = star.TakeTokens(c2, k) u = Abs(t)"
    )
    outputs = ", ".join(["float[n] u", *(f"float[n] c{layer}" for layer in range(1, of.spec.depth + 1))])
    graph = graph_of(f"(float[n] q) => ({outputs}) {{ {' '.join(blocks)} }}")
    applied(name_decisions, graph, of)
    named = {node.name: node.outputs[0].name for node in graph.nodes if node.domain}
    assert named == {
        "ClassRow/class_row_02": "class_row_02",
        "KeepTopK/keep_02": "keep_02",
        "TakeTokens/tokens_02": "tokens_02",
        **{f"Attention/context_0{layer}": f"context_0{layer}" for layer in range(1, of.spec.depth + 1)},
    }


CHOOSING = "r = star.ClassRow(q, q) k = star.KeepTopK <k = 8> (r) t = star.TakeTokens(c, k) u = Abs(t)"


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("", "1 nodes Attention, not 4"),
        ("r = star.ClassRow(q, q)", "0 nodes ClassRow, not 1"),
        ("k = star.KeepTopK <k = 8> (r)", "0 nodes KeepTopK, not 1"),
        ("t = star.TakeTokens(c, k)", "0 nodes TakeTokens, not 1"),
    ],
)
def test_a_layer_that_is_missing_is_no_matter_of_guessing(lost: str, message: str) -> None:
    body = CHOOSING.replace(lost, f"{lost[0]} = Identity(q)") if lost else CHOOSING
    graph = graph_of(f"(float[n] q) => (float[n] c, float[n] u) {{ c = star.Attention(q, q, q) {body} }}")
    with pytest.raises(RuntimeError, match=message):
        name_decisions(graph, artefact(2))


def test_a_decision_that_the_schedule_does_not_know_is_refused() -> None:
    graph = graph_of(f"(float[n] q) => (float[n] c, float[n] u) {{ c = star.Attention(q, q, q) {CHOOSING} }}")
    with pytest.raises(RuntimeError, match="1 nodes KeepTopK, not 0"):
        name_decisions(graph, artefact())
