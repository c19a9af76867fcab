"""Which nodes choose patches and which compute the outputs, and the names of decisions."""

from dataclasses import replace

import onnx_graphsurgeon as gs
import pytest

from exporter.core.base.tensor_names import (
    into_name,
    keep_name,
    ranked_name,
    shares_name,
)
from exporter.core.lower.decisions import name_decisions, scoring_nodes
from tests.core.lower.graphs import applied, artefact, graph_of

JOINING = """
 keys = Relu(x)
 mean = Abs(keys)
 turned = Transpose(mean)
 cosine = MatMul(mean, turned)
 best = ReduceMax(cosine)
 order = star.KeepTopK <k = 8> (best)
 chosen = Identity(order)
 into = ArgMax(cosine)
 weights = Equal(into, chosen)
 shares = Cast <to = 1> (weights)
 out = MatMul(shares, x)
"""
NAMES = {
    "mean": "into_01/mean_key",
    "chosen": keep_name(1),
    "into": into_name(1),
    "shares": shares_name(1),
}
MERGING = artefact(1)
MERGING = replace(
    MERGING, schedule=replace(MERGING.schedule, scorer="pairs", reduce="merge")
)


def named(lost: str = "") -> gs.Graph:
    """A layer that merges, with the names that no text could have, but for one."""
    graph = graph_of(
        f"(float[b, 17, 4] x) => (float[b, 17, 4] out, int64[b, 8] chosen) {{ {JOINING} }}"
    )
    for name, tensor in list(graph.tensors().items()):
        tensor.name = name if name == lost else NAMES.get(name, name)
    return graph


def test_a_layer_without_a_decision_is_not_passed_over() -> None:
    with pytest.raises(
        RuntimeError, match=f"no {keep_name(2)} or {ranked_name(2)} or .* in the graph"
    ):
        scoring_nodes(named(), artefact(2))


@pytest.mark.parametrize("lost", ["mean", "into", "shares"])
def test_merging_without_one_of_its_tensors_is_not_passed_over(lost: str) -> None:
    with pytest.raises(RuntimeError, match=f"no {NAMES[lost]} in the graph"):
        scoring_nodes(named(lost), MERGING)


@pytest.mark.parametrize(
    ("product", "behind"),
    [
        ("MatMul(h, w)", False),
        ("Gemm(h, w)", False),
        ("Attention(h, h, h)", False),
        ("Shape(h)", False),
        ("Size(h)", False),
        ("Abs(h)", True),
    ],
)
def test_scores_begin_at_a_product_or_at_a_size(product: str, behind: bool) -> None:
    """The probe's product is a Gemm in a file for ONNX Runtime: behind it, the network may be in half precision."""
    graph = graph_of(
        f"(float[4, 4] x, float[4, 4] w) => (int64[4] k) {{ h = Neg(x) p = {product} k = ArgMax(p) }}"
    )
    graph.outputs[0].name = keep_name(1)
    scoring = scoring_nodes(graph, artefact(1))
    operators = {node.op for node in graph.nodes if id(node) in scoring}
    assert operators == {
        "ArgMax",
        product.partition("(")[0],
        *(["Neg"] if behind else []),
    }


def test_pruning_layers_name_their_decisions_and_every_layer_its_attention() -> None:
    of = artefact(2)
    blocks = [
        f"c{layer} = star.Attention(q, q, q)" for layer in range(1, of.spec.depth + 1)
    ]
    blocks.insert(
        2,
        "r = star.ClassRow(q, q) k = star.KeepTopK <k = 8> (r) t = star.TakeTokens(c2, k) u = Abs(t)",
    )
    outputs = ", ".join(
        ["float[n] u", *(f"float[n] c{layer}" for layer in range(1, of.spec.depth + 1))]
    )
    graph = graph_of(f"(float[n] q) => ({outputs}) {{ {' '.join(blocks)} }}")
    applied(name_decisions, graph, of)
    named = {node.name: node.outputs[0].name for node in graph.nodes if node.domain}
    assert named == {
        "ClassRow/class_row_02": "class_row_02",
        "KeepTopK/keep_02": "keep_02",
        "TakeTokens/tokens_02": "tokens_02",
        **{
            f"Attention/context_0{layer}": f"context_0{layer}"
            for layer in range(1, of.spec.depth + 1)
        },
    }


PRUNING = "r = star.ClassRow(q, q) k = star.KeepTopK <k = 8> (r) t = star.TakeTokens(c, k) u = Abs(t)"


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("", "1 nodes Attention, not 4"),
        ("r = star.ClassRow(q, q)", "0 nodes ClassRow, not 1"),
        ("k = star.KeepTopK <k = 8> (r)", "0 nodes KeepTopK, not 1"),
        ("t = star.TakeTokens(c, k)", "0 nodes TakeTokens, not 1"),
    ],
)
def test_a_layer_that_is_missing_is_no_matter_of_guessing(
    lost: str, message: str
) -> None:
    body = PRUNING.replace(lost, f"{lost[0]} = Identity(q)") if lost else PRUNING
    graph = graph_of(
        f"(float[n] q) => (float[n] c, float[n] u) {{ c = star.Attention(q, q, q) {body} }}"
    )
    with pytest.raises(RuntimeError, match=message):
        name_decisions(graph, artefact(2))


def test_a_decision_that_the_schedule_does_not_know_is_refused() -> None:
    graph = graph_of(
        f"(float[n] q) => (float[n] c, float[n] u) {{ c = star.Attention(q, q, q) {PRUNING} }}"
    )
    with pytest.raises(RuntimeError, match="1 nodes KeepTopK, not 0"):
        name_decisions(graph, artefact())
