"""Fused attention: one node a block where the heads allow it, and the same numbers."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.expand_attention import expand_attention
from exporter.lowering.passes.fuse_attention import fuse_attention
from exporter.lowering.passes.spread_masks import spread_masks
from exporter.targets import ONNXRUNTIME, TENSORRT
from tests.lowering import graphs
from tests.lowering.graphs import applied, artefact, graph_of, noise, operators
from tests.lowering.models import RATES, lowered, run, star
from tests.vits import random_images

PRIMITIVE = replace(ONNXRUNTIME, passes=TENSORRT.passes)


def test_every_block_has_one_attention_node_and_moves_no_heads() -> None:
    fused = Counter(node.op_type for node in lowered(star()).graph.node)
    plain = Counter(node.op_type for node in lowered(star(), PRIMITIVE).graph.node)
    depth, pruning = star().vit.spec.depth, len(RATES)
    assert fused["Attention"] == depth
    assert fused["Split"] == 0
    assert fused["Softmax"] == pruning  # the class rows; attention's own are inside the nodes
    assert plain["Transpose"] - fused["Transpose"] >= 3 * depth  # query, key and value
    assert plain["Attention"] == 0


def test_norms_on_query_and_key_keep_their_heads() -> None:
    operators = Counter(node.op_type for node in lowered(star("qk norm")).graph.node)
    assert operators["Attention"] == 0
    assert operators["Softmax"] == 4 + len(RATES)


@pytest.mark.ort
@pytest.mark.parametrize("family", ["vit", "distilled", "registers", "qk norm"])
def test_fused_and_primitive_attention_agree(family: str) -> None:
    images = random_images(star(family).vit, 3).numpy()
    logits = [run(lowered(star(family), target), images)["logits"] for target in (ONNXRUNTIME, PRIMITIVE)]
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4 * logits[1].std() + 1e-6)


HEADS, WIDTH = artefact().spec.num_heads, 4
DIM = HEADS * WIDTH
CONSTANTS = {
    "w": noise(DIM, 3 * DIM) / 4,
    "b": noise(3 * DIM),
    "split": np.array([0, 5, 3, HEADS, WIDTH]),
    "merge": np.array([0, 5, DIM]),
    "axis": np.array([0]),
    **{f"n{n}": np.array([n]) for n in range(4)},
}


def block(
    projection: str = "m = MatMul(x, w) p = Add(m, b)",
    query: str = "q",
    order: str = "012",
    class_tokens: int = 1,
) -> gs.Graph:
    """An attention as the exporter writes it: heads out of a packed projection, and back to tokens."""
    thirds = " ".join(
        f"s{part} = Slice(h, n{n}, n{int(n) + 1}, axis) {part} = Squeeze(s{part}, axis)"
        for part, n in zip("qkv", order, strict=True)
    )
    return graph_of(
        f"(float[b, 5, {DIM}] x) => (float[b, 5, {DIM}] y, float[b, {HEADS * class_tokens}, 5] r) {{ {projection}"
        " g = Reshape(p, split) h = Transpose <perm = [2, 0, 3, 1, 4]> (g)"
        f" {thirds} u = Abs(q) context_01 = star.Attention <scale = 0.5> ({query}, k, v)"
        f" r = star.ClassRow <scale = 0.5, num_class_tokens = {class_tokens}> ({query}, k)"
        " t = Transpose <perm = [0, 2, 1, 3]> (context_01) z = Reshape(t, merge) y = Abs(z) }",
        CONSTANTS,
    )


def with_shapes(graph: gs.Graph) -> gs.Graph:
    """Shape inference stops at markers; the exporter knows what they give."""
    tensors = graph.tensors()
    tensors["z"].to_variable(np.float32, ["b", 5, DIM])
    tensors["p"].to_variable(np.float32, ["b", 5, 3 * DIM])
    return graph


@pytest.mark.ort
@pytest.mark.parametrize(
    ("projection", "left"),
    [
        ("m = MatMul(x, w) p = Add(m, b)", {"Split": 0, "MatMul": 4}),
        ("a = MatMul(x, w) p = Tanh(a)", {"Split": 1, "MatMul": 2}),
    ],
    ids=["a linear layer", "something else"],
)
@pytest.mark.parametrize("class_tokens", [1, 2])
def test_one_node_on_tokens_computes_what_the_markers_mean(
    projection: str, left: dict[str, int], class_tokens: int
) -> None:
    one, other = (with_shapes(block(projection, class_tokens=class_tokens)) for _ in range(2))
    assert applied(fuse_attention, other) == 1
    counts = operators(other)
    assert counts["Attention"] == 1
    assert {name: counts[name] for name in left} == left
    assert not [node for node in other.nodes if node.domain]
    assert "context_01" in other.tensors()
    applied(expand_attention, one)
    x = noise(2, 5, DIM)
    expected, got = graphs.run(one, x=x), graphs.run(other, x=x)
    for name in ("y", "r"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.ort
def test_pairs_and_a_bias_are_read_by_the_fused_block_too() -> None:
    """The marker gets the keys as the projection gives them, [batch, tokens, dim]."""
    one, other = (with_shapes(block()) for _ in range(2))
    bias = noise(1, 1, 1, 5)
    for graph in (one, other):
        tensors = graph.tensors()
        (node,) = (each for each in graph.nodes if each.op == "Attention")
        node.inputs.append(gs.Constant("bias", bias))
        outputs = [gs.Variable(name) for name in ("keep", "into", "score", "gap")]
        graph.nodes.append(gs.Node("PairTokens", "pair", {}, [tensors["k"]], outputs, domain="star"))
        graph.outputs.append(outputs[0])
    assert applied(fuse_attention, other) == 1
    (pairing,) = (each for each in other.nodes if each.op == "PairTokens")
    assert pairing.inputs[0].shape == ["b", 5, DIM]
    assert pairing.inputs[0] is next(each for each in other.nodes if each.op == "Attention").inputs[1]
    for graph in (one, other):
        graph.outputs.pop()
        graph.cleanup()
    applied(expand_attention, one)
    applied(spread_masks, other)
    x = noise(2, 5, DIM)
    expected, got = graphs.run(one, x=x), graphs.run(other, x=x)
    np.testing.assert_allclose(got["y"], expected["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "graph", [block(query="u"), block(order="021")], ids=["a norm on the query", "another order"]
)
def test_other_heads_are_left_alone(graph: gs.Graph) -> None:
    assert applied(fuse_attention, with_shapes(graph)) == 0
    assert [node.op for node in graph.nodes if node.domain] == ["Attention", "ClassRow"]
