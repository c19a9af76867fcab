"""Which nodes choose patches and which compute the outputs, and the names of decisions."""

from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs
import pytest
import torch

from exporter.artefact import Artefact
from exporter.lowering.decisions import behind, name_decisions, scoring_nodes, write_directions
from exporter.lowering.graph import Builder
from exporter.ops.factors import directions
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.tensor_names import count_name, into_name, keep_name, ranked_name, shares_name
from exporter.vocabulary import Method
from tests.lowering.graphs import applied, artefact, graph_of

HEADS, TOKENS, WIDTH = 3, 5, 4


@pytest.mark.ort
@pytest.mark.parametrize("packed", [False, True], ids=["by head", "as projected"])
def test_they_are_those_of_the_operator(packed: bool) -> None:
    by_head = np.random.default_rng(0).standard_normal((2, HEADS, TOKENS, WIDTH)).astype(np.float32)
    by_head[1, :, 2] = 0.0  # a key of zeros
    given = by_head.transpose(0, 2, 1, 3).reshape(2, TOKENS, -1) if packed else by_head
    key = gs.Variable("key", np.float32, ["batch", *given.shape[1:]])
    graph = gs.Graph([], [key], [], opset=20)
    found = write_directions(Builder(graph, prefix="into_01"), key, HEADS)
    found.dtype, graph.outputs = np.dtype(np.float32), [found]
    model = gs.export_onnx(graph)
    model.ir_version = 10
    with OnnxRuntimeRunner(model.SerializeToString()) as runner:
        results = runner.run({"key": given})
    expected = directions(torch.from_numpy(by_head), 0).numpy()
    np.testing.assert_allclose(results["into_01/directions"], expected, atol=1e-6)


SIGNATURE = "(float[b, 17, 4] x, float[b, 4, 17] y) => (float[b, 17, 17] out, int64[b, 8] chosen)"
BODY = """
 before = Relu(x)
 product = MatMul(before, y)
 weights = Softmax(product)
 size = Shape(weights)
 wide = Expand(weights, size)
 mean = ReduceMean(weights)
 score = Mul(mean, wide)
 order = star.KeepTopK <k = 8> (score)
 picked = Identity(order)
 chosen = Identity(picked)
 out = Add(product, product)
"""


def named(body: str = BODY, **names: str) -> gs.Graph:
    """A graph whose nodes are called as what they give; then some tensors by names that no text could have."""
    graph = graph_of(f"{SIGNATURE} {{ {body} }}")
    for node in graph.nodes:
        node.name = node.outputs[0].name
    for name, tensor in list(graph.tensors().items()):
        tensor.name = names.get(name, name)
    return graph


CHOOSING = {"product", "weights", "size", "wide", "mean", "score", "order", "picked"}


def found(graph: gs.Graph, of: Artefact) -> set[str]:
    """What the scoring nodes give."""
    scoring = scoring_nodes(graph, of)
    return {node.outputs[0].name for node in graph.nodes if id(node) in scoring}


@pytest.mark.parametrize("name", [keep_name(1), ranked_name(1)])
def test_back_to_the_product_and_no_further(name: str) -> None:
    """The product itself is among them; what it reads is not, nor what reads the decision or the product."""
    assert found(named(picked=name), artefact(1)) == CHOOSING - {"picked"} | {name}


def test_a_count_is_a_decision_too() -> None:
    graph = named(size=keep_name(1), picked=count_name(1))
    adaptive = replace(artefact(1), schedule=replace(artefact(1).schedule, method=Method.A_STAR))
    assert found(graph, adaptive) == CHOOSING - {"size", "picked"} | {keep_name(1), count_name(1)}
    with pytest.raises(RuntimeError, match=f"no {count_name(1)} in the graph"):
        scoring_nodes(named(picked=keep_name(1)), adaptive)


@pytest.mark.parametrize("name", ["", "same"])
def test_names_of_nodes_do_not_matter(name: str) -> None:
    """Nodes without names, or with one name, once ended the walk at the first of them."""
    graph = named(picked=keep_name(1))
    for node in graph.nodes:
        node.name = name
    assert found(graph, artefact(1)) == CHOOSING - {"picked"} | {keep_name(1)}


def test_a_walk_ends_with_a_size() -> None:
    graph = named("long = Relu(x) size = Shape(long) mean = Expand(y, size) chosen = Cast(mean) out = Exp(x)")
    assert {node.name for node in behind([graph.tensors()["chosen"]])} == {"size", "mean", "chosen"}


@pytest.mark.parametrize("product", ["MatMul", "Gemm", "star.Attention"])
def test_every_product_ends_a_walk(product: str) -> None:
    graph = named(f"long = Relu(x) made = {product}(long, y) chosen = Cast(made) out = Exp(made)")
    assert [node.name for node in behind([graph.tensors()["chosen"]])] == ["chosen", "made"]


def test_a_walk_ends_with_a_mean_key_where_no_product_scores() -> None:
    graph = named("keys = Relu(x) mean = Relu(keys) score = Neg(mean) chosen = Abs(score) out = Exp(keys)")
    graph.tensors()["mean"].name = "factor_01/mean_key"
    graph.tensors()["chosen"].name = keep_name(1)
    assert found(graph, artefact(1)) == {"factor_01/mean_key", "score", keep_name(1)}


def test_a_node_comes_once_however_many_ways_lead_to_it() -> None:
    tensors = named().tensors()
    names = [node.name for node in behind([tensors["picked"], tensors["score"], tensors["picked"]])]
    assert len(names) == len(set(names)) and set(names) == CHOOSING
    assert list(behind([])) == [] and list(behind([tensors["x"]])) == []


def test_layers_that_prune_alone_have_decisions() -> None:
    assert found(named(picked=keep_name(1)), artefact()) == set()
    both = named(picked=keep_name(2), mean=keep_name(1))
    assert found(both, artefact(1, 2)) == CHOOSING - {"picked", "mean"} | {keep_name(1), keep_name(2)}
    assert found(both, artefact(1)) == {"product", "weights", keep_name(1)}


def test_a_layer_without_a_decision_is_not_passed_over() -> None:
    with pytest.raises(RuntimeError, match=f"no {keep_name(2)} or {ranked_name(2)} or .* in the graph"):
        scoring_nodes(named(picked=keep_name(1)), artefact(2))


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
MERGING = replace(MERGING, schedule=replace(MERGING.schedule, scorer="pairs", reduce="merge"))


def test_who_joins_whom_and_the_weights_of_the_mean_are_theirs_too() -> None:
    """From the mean key on, on both sides of the product, and not the product of the tokens."""
    expected = {"turned", "cosine", "best", "order", "weights", *NAMES.values()}
    assert found(named(JOINING, **NAMES), MERGING) == expected


@pytest.mark.parametrize("lost", ["mean", "into", "shares"])
def test_merging_without_one_of_its_tensors_is_not_passed_over(lost: str) -> None:
    names = {name: to for name, to in NAMES.items() if name != lost}
    with pytest.raises(RuntimeError, match=f"no {NAMES[lost]} in the graph"):
        scoring_nodes(named(JOINING, **names), MERGING)


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
def test_a_layer_that_is_missing_is_no_matter_of_guessing(lost: str, message: str) -> None:
    body = PRUNING.replace(lost, f"{lost[0]} = Identity(q)") if lost else PRUNING
    graph = graph_of(f"(float[n] q) => (float[n] c, float[n] u) {{ c = star.Attention(q, q, q) {body} }}")
    with pytest.raises(RuntimeError, match=message):
        name_decisions(graph, artefact(2))


def test_a_decision_that_the_schedule_does_not_know_is_refused() -> None:
    graph = graph_of(f"(float[n] q) => (float[n] c, float[n] u) {{ c = star.Attention(q, q, q) {PRUNING} }}")
    with pytest.raises(RuntimeError, match="1 nodes KeepTopK, not 0"):
        name_decisions(graph, artefact())
