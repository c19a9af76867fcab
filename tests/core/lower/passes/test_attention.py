"""The passes of attention: as one node, on heads, in parts; its biases and masks."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.core.base.targets import IN_PARTS, ONNXRUNTIME, TENSORRT
from exporter.core.lower.passes.attention import (
    expand_attention,
    fuse_attention,
    masks_by_head,
    split_heads,
    spread_masks,
    sum_class_rows,
    turn_square_contexts,
)
from exporter.core.lower.passes.projections import fold_attention_biases
from exporter.core.prune.pruned_vit import PrunedViT
from tests.core.lower import graphs
from tests.core.lower.graphs import (
    applied,
    artefact,
    attention_on_heads,
    graph_of,
    noise,
    operators,
    run,
)
from tests.core.lower.models import a_star, lowered, merging, operators_in, star, tome
from tests.core.lower.models import run as run_model
from tests.core.prune.adaptive import RATES
from tests.exhaustive import also
from tests.vits import random_images

STANDARD = replace(ONNXRUNTIME, passes=IN_PARTS)


def test_every_block_has_one_attention_node_and_moves_no_heads() -> None:
    fused = operators_in(lowered(star()))
    plain = operators_in(lowered(star(), STANDARD))
    depth, pruning = star().vit.spec.depth, len(RATES)
    assert fused["Attention"] == depth
    assert fused["Split"] == 0
    # the class rows; attention's own are inside the nodes
    assert fused["Softmax"] == pruning
    assert plain["Transpose"] - fused["Transpose"] >= 3 * depth  # query, key and value
    assert plain["Attention"] == 0


def test_norms_on_query_and_key_keep_their_heads() -> None:
    operators = operators_in(lowered(star("qk norm")))
    assert operators["Attention"] == 0
    assert operators["Softmax"] == 4 + len(RATES)


MODEL_HEADS, MODEL_WIDTH = artefact().spec.num_heads, 4
DIM = MODEL_HEADS * MODEL_WIDTH
CONSTANTS = {
    "w": noise(DIM, 3 * DIM) / 4,
    "b": noise(3 * DIM),
    "split": np.array([0, 5, 3, MODEL_HEADS, MODEL_WIDTH]),
    "merge": np.array([0, 5, DIM]),
    "axis": np.array([0]),
    **{f"n{n}": np.array([n]) for n in range(4)},
}


def fused_block(
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
        f"(float[b, 5, {DIM}] x) => "
        f"(float[b, 5, {DIM}] y, float[b, {MODEL_HEADS * class_tokens}, 5] r) {{ {projection}"
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
    one, other = (
        with_shapes(fused_block(projection, class_tokens=class_tokens))
        for _ in range(2)
    )
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


@pytest.mark.parametrize(
    "graph",
    [fused_block(query="u"), fused_block(order="021")],
    ids=["a norm on the query", "another order"],
)
def test_other_heads_are_left_alone(graph: gs.Graph) -> None:
    assert applied(fuse_attention, with_shapes(graph)) == 0
    assert [node.op for node in graph.nodes if node.domain] == ["Attention", "ClassRow"]


TOKENS = "float[b, 5, 6]"
WEIGHTS = {
    **{f"w{part}": noise(6, 6) for part in "qkvo"},
    **{f"b{part}": noise(6) for part in "qkvo"},
}
PARTS = " ".join(
    f"m{part} = MatMul(x, w{part}) {part} = Add(m{part}, b{part})" for part in "qkv"
)
ATTENTION = "c = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v)"


def biased_block(
    between: str = "n = Identity(c)", outputs: str = f"{TOKENS} y"
) -> gs.Graph:
    read = "n" if between.startswith("n") else "c"
    ending = f"mo = MatMul({read}, wo) y = Add(mo, bo)"
    return graph_of(
        f"({TOKENS} x) => ({outputs}) {{ {PARTS} {ATTENTION} {between} {ending} }}",
        WEIGHTS,
    )


@pytest.mark.ort
@pytest.mark.parametrize(
    ("between", "outputs", "changed"),
    [
        ("", f"{TOKENS} y", 2),
        ("n = Abs(c)", f"{TOKENS} y", 1),
        ("a = Abs(v)", f"{TOKENS} y, {TOKENS} a", 1),
        ("a = Abs(c)", f"{TOKENS} y, {TOKENS} a", 1),
    ],
    ids=["both", "not behind it at once", "values read", "context read"],
)
def test_the_numbers_stay(between: str, outputs: str, changed: int) -> None:
    one = biased_block(between, outputs)
    other = biased_block(between, outputs)
    x = noise(2, 5, 6)
    assert applied(fold_attention_biases, other) == changed
    assert operators(one)["Add"] - operators(other)["Add"] == changed
    expected = run(one, x=x)
    for name, result in run(other, x=x).items():
        np.testing.assert_allclose(result, expected[name], rtol=1e-4, atol=1e-4)


QUERY, CONTEXT = "float[b, 3, 6]", "float[b, 5, 6]"


@pytest.mark.ort
@pytest.mark.parametrize("mask", ["", ", m"])
def test_the_numbers_of_the_node(mask: str) -> None:
    graph = graph_of(
        f"({QUERY} q, {CONTEXT} k, {CONTEXT} v, bool[b, 1, 3, 5] m) => ({QUERY} y) "
        f"{{ context_01 = Attention <q_num_heads = 2, kv_num_heads = 2, scale = 0.7> (q, k, v{mask}) "
        "y = Neg (context_01) }"
    )
    if not mask:
        graph.inputs.pop()
    feed = {"q": noise(2, 3, 6), "k": noise(2, 5, 6), "v": noise(2, 5, 6)}
    if mask:
        feed["m"] = np.broadcast_to(
            [True, True, False, True, False], (2, 1, 3, 5)
        ).copy()
    expected = run(graph, **feed)["y"]
    assert applied(split_heads, graph) == 1
    assert operators(graph)["Attention"] == 1  # the marker, which has the same name
    applied(expand_attention, graph)
    names = {node.name for node in graph.nodes}
    assert {
        "context_01/query_key",
        "context_01/softmax",
        "context_01/weigh_value",
    } <= names
    np.testing.assert_allclose(run(graph, **feed)["y"], expected, atol=1e-5)


def test_attention_on_heads_is_left_to_other_passes() -> None:
    heads = "float[b, 2, 5, 3]"
    graph = graph_of(
        f"({heads} q, {heads} k, {heads} v) => ({heads} y) {{ y = Attention (q, k, v) }}"
    )
    assert applied(split_heads, graph) == 0


def masked(mask: str, kind: str = "bool") -> gs.Graph:
    return graph_of(
        f"(float[b, 3, 6] q, {TOKENS} k, {TOKENS} v, {kind}[b, 1, 1, 5] m) => (float[b, 3, 6] y) "
        f"{{ y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v{mask}) }}"
    )


@pytest.mark.ort
def test_the_mask_has_a_row_for_every_query() -> None:
    graph = masked(", m")
    assert applied(spread_masks, graph) == 1
    query, key, value = noise(2, 3, 6), noise(2, 5, 6), noise(2, 5, 6)
    mask = np.array([[[[True, True, False, True, False]]], [[[True] * 5]]])
    graph.outputs.append(graph.nodes[-1].inputs[3])
    graph.outputs[-1].shape = ["b", 1, 3, 5]
    results = run(graph, q=query, k=key, v=value, m=mask)
    np.testing.assert_array_equal(
        results["y/spread_mask"], np.broadcast_to(mask, (2, 1, 3, 5))
    )
    for image, kept in enumerate(mask[:, 0, 0]):
        less = masked("")
        less.inputs.pop()
        alone = run(
            less, q=query[image : image + 1], k=key[None, image], v=value[None, image]
        )
        assert kept.all() == np.allclose(alone["y"], results["y"][image], atol=1e-5)


def test_without_a_mask_nothing_is_added() -> None:
    graph = masked("")
    assert applied(spread_masks, graph) == 0
    assert operators(graph) == {"Attention": 1}


@pytest.mark.ort
def test_a_float_mask_has_a_row_for_every_head() -> None:
    graph = masked(", m", "float")
    graph.nodes[0].attrs["scale"] = 3**-0.5  # the default of this head's size
    assert applied(masks_by_head, graph) == 1
    assert applied(masks_by_head, masked(", m")) == 0  # one that leaves keys out
    feed = {"q": noise(2, 3, 6), "k": noise(2, 5, 6), "v": noise(2, 5, 6)}
    feed["m"] = noise(2, 1, 1, 5)
    graph.outputs.append(graph.nodes[-1].inputs[3])
    graph.outputs[-1].shape = ["b", 2, 1, 5]
    applied(split_heads, graph)
    applied(expand_attention, graph)
    results = run(graph, **feed)
    np.testing.assert_array_equal(
        results["y/mask_by_head"], np.broadcast_to(feed["m"], (2, 2, 1, 5))
    )
    by_query = masked(", m", "float")
    applied(spread_masks, by_query)
    expected = run(by_query, **feed)["y"]
    np.testing.assert_allclose(results["y/merged"], expected, atol=1e-5)


BY_HEAD = "float[b, 2, 5, 3]"
SCALE = 0.7


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def expanded(kind: str = "") -> gs.Graph:
    takes, reads = (f", {kind}[b, 1, 1, 5] m", ", m") if kind else ("", "")
    return graph_of(
        f"({BY_HEAD} q, {BY_HEAD} k, {BY_HEAD} v{takes}) => ({BY_HEAD} context_01) "
        f"{{ context_01 = star.Attention <scale = {SCALE}> (q, k, v{reads}) }}"
    )


KEYS = np.array([[[[True, True, False, True, False]]], [[[True] * 5]]])
BIAS = noise(2, 1, 1, 5)


@pytest.mark.ort
@pytest.mark.parametrize(
    ("kind", "mask"), [("", None), ("bool", KEYS), ("float", BIAS)]
)
def test_attention(kind: str, mask: np.ndarray | None) -> None:
    """A mask of booleans says which keys are read, one of floats is added to their logits."""
    query, key, value = (noise(2, 2, 5, 3) for _ in "qkv")
    graph = expanded(kind)
    assert applied(expand_attention, graph) == 1
    logits = SCALE * query @ key.swapaxes(2, 3)
    if mask is not None:
        logits = np.where(mask, logits, -np.inf) if kind == "bool" else logits + mask
    expected = softmax(logits) @ value
    feed = {"q": query, "k": key, "v": value, **({} if mask is None else {"m": mask})}
    np.testing.assert_allclose(
        run(graph, **feed)["context_01"], expected, rtol=1e-4, atol=1e-6
    )


@pytest.mark.ort
@pytest.mark.parametrize(("heads", "tokens"), [(3, 3), (3, 4), (4, 3)])
def test_a_context_of_as_many_queries_as_heads_is_turned_by_a_gather(
    heads: int, tokens: int
) -> None:
    graph, plain = (attention_on_heads(heads, tokens) for _ in range(2))
    square = int(heads == tokens)
    assert applied(turn_square_contexts, graph) == square
    counts = operators(graph)
    assert (counts["Gather"], counts["Transpose"]) == (square, 1 - square)
    for unexpanded in (graph, plain):
        applied(expand_attention, unexpanded)
    feed = {name: noise(2, heads, tokens, 16) for name in "qkv"}
    np.testing.assert_array_equal(run(graph, **feed)["y"], run(plain, **feed)["y"])


@pytest.mark.ort
@pytest.mark.parametrize(("kind", "operator"), [("bool", "Where"), ("float", "Add")])
def test_the_parts_have_the_names_that_an_audit_looks_for(
    kind: str, operator: str
) -> None:
    graph = expanded(kind)
    applied(expand_attention, graph)
    assert [(node.op, node.name) for node in graph.nodes] == [
        ("Mul", "context_01/scale_query"),
        ("Transpose", "context_01/turn_key"),
        ("MatMul", "context_01/query_key"),
        (operator, "context_01/mask"),
        ("Softmax", "context_01/softmax"),
        ("MatMul", "context_01/weigh_value"),
    ]


@pytest.mark.ort
@pytest.mark.parametrize(("tokens", "summed"), [(1, True), (1, False), (2, True)])
def test_class_row(tokens: int, summed: bool) -> None:
    graph = graph_of(
        f"({BY_HEAD} q, {BY_HEAD} k) => (float[b, {2 * tokens}, 5] class_row_01) "
        f"{{ class_row_01 = star.ClassRow <scale = {SCALE}, num_class_tokens = {tokens}> (q, k) }}"
    )
    if summed:  # rows of several tokens stay a product
        assert applied(sum_class_rows, graph) == (tokens == 1)
    product = tokens > 1 or not summed
    assert applied(expand_attention, graph) == product
    assert ("MatMul" in operators(graph)) == product
    query, key = noise(2, 2, 5, 3), noise(2, 2, 5, 3)
    expected = SCALE * np.einsum("bhrd,bhtd->bhrt", query[:, :, :tokens], key).reshape(
        2, 2 * tokens, 5
    )
    np.testing.assert_allclose(
        run(graph, q=query, k=key)["class_row_01"], expected, rtol=1e-4, atol=1e-6
    )


@pytest.mark.ort
@pytest.mark.parametrize(
    "make",
    [
        star,
        also(partial(star, "distilled")),
        partial(star, "eva, bias apart"),
        also(partial(star, "qk norm")),
        also(merging),
        tome,
        also(partial(a_star, layout="padded")),
    ],
    ids=["vit", "distilled", "bias apart", "qk norm", "merging", "tome", "a-star"],
)
def test_a_projection_without_its_bias_computes_the_same(
    make: Callable[[], PrunedViT],
) -> None:
    pruned = make()
    images = random_images(pruned.vit, 3).numpy()
    names = tuple(name for name in TENSORRT.passes if name != "bare_projections")
    logits = [
        run_model(lowered(pruned, replace(TENSORRT, passes=passes)), images)["logits"]
        for passes in (TENSORRT.passes, names)
    ]
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4 * logits[1].std() + 1e-6)


def test_the_product_of_query_key_and_value_is_read_as_it_is() -> None:
    """Nothing is added to it, and all of its heads are cut from one Reshape; the keys have no bias at all."""
    graph = gs.import_onnx(lowered(star(), TENSORRT))
    dim = star().vit.spec.dim
    packed = [
        node
        for node in graph.nodes
        if node.op == "MatMul" and node.inputs[1].shape == [dim, 3 * dim]
    ]
    assert len(packed) == star().vit.spec.depth
    assert {reader.op for node in packed for reader in node.outputs[0].outputs} == {
        "Reshape"
    }
    biases = [node.name for node in graph.nodes if node.name.endswith("/add_bias")]
    # One for the query's heads of each block; the others are of linear layers, and named otherwise.
    assert len(biases) == star().vit.spec.depth
