"""Nodes that choose patches: back from each decision to the product that made the scores, and no further."""

import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.scoring import behind, scoring_nodes
from exporter.tensor_names import count_name, keep_name, ranked_name
from tests.lowering.graphs import artefact, graph_of

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


@pytest.mark.parametrize("name", [keep_name(1), ranked_name(1), count_name(1)])
def test_back_to_the_product_and_no_further(name: str) -> None:
    """The product itself is among them; what it reads is not, nor what reads the decision or the product."""
    assert scoring_nodes(named(picked=name), artefact(1)) == CHOOSING


def test_a_walk_ends_with_a_size() -> None:
    graph = named("long = Relu(x) size = Shape(long) mean = Expand(y, size) chosen = Cast(mean) out = Exp(x)")
    found = {node.name for node in behind([graph.tensors()["chosen"]])}
    assert found == {"size", "mean", "chosen"}


@pytest.mark.parametrize("product", ["MatMul", "Gemm", "star.Attention"])
def test_every_product_ends_a_walk(product: str) -> None:
    graph = named(f"long = Relu(x) made = {product}(long, y) chosen = Cast(made) out = Exp(made)")
    assert [node.name for node in behind([graph.tensors()["chosen"]])] == ["chosen", "made"]


def test_a_walk_ends_with_a_mean_key_where_no_product_scores() -> None:
    graph = named("keys = Relu(x) mean = Relu(keys) score = Neg(mean) chosen = Abs(score) out = Exp(keys)")
    for node in graph.nodes:
        node.name = node.name.replace("mean", "factor_01/mean_key")
    graph.tensors()["chosen"].name = keep_name(1)
    assert scoring_nodes(graph, artefact(1)) == {"factor_01/mean_key", "score", "chosen"}


def test_a_node_comes_once_however_many_ways_lead_to_it() -> None:
    tensors = named().tensors()
    found = [node.name for node in behind([tensors["picked"], tensors["score"], tensors["picked"]])]
    assert len(found) == len(set(found)) and set(found) == CHOOSING
    assert list(behind([])) == [] and list(behind([tensors["x"]])) == []


def test_layers_that_prune_alone_have_decisions() -> None:
    assert scoring_nodes(named(picked=keep_name(1)), artefact(2)) == frozenset()
    assert scoring_nodes(named(picked=keep_name(1)), artefact()) == frozenset()
    both = named(picked=keep_name(2), mean=keep_name(1))
    assert scoring_nodes(both, artefact(1, 2)) == CHOOSING
    assert scoring_nodes(both, artefact(1)) == {"product", "weights", "mean"}


def test_who_joins_whom_and_the_weights_of_the_mean_are_theirs_too() -> None:
    graph = named()
    renamed = {"out": "into_01/cosine", "before": "sizes_01/total", "chosen": "into_02/cosine"}
    for node in graph.nodes:
        node.name = renamed.get(node.name, node.name)
    assert scoring_nodes(graph, artefact(1)) == {"into_01/cosine", "sizes_01/total"}
    assert scoring_nodes(graph, artefact(1, 2)) == set(renamed.values())
