"""The passes of attention: as one node, on heads, in parts; its biases and masks."""

from dataclasses import replace

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
from tests.core.lower.graphs import (
    applied,
    artefact,
    attention_on_heads,
    graph_of,
    noise,
    operators,
    run,
)
from tests.core.lower.models import lowered, operators_in, star
from tests.core.prune.adaptive import RATES

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


@pytest.mark.parametrize(
    ("query", "order", "fused"),
    [("q", "012", 1), ("u", "012", 0), ("q", "021", 0)],
    ids=["as exported", "a norm on the query", "another order"],
)
def test_heads_are_fused_as_the_exporter_writes_them(
    query: str, order: str, fused: int
) -> None:
    """Heads out of a packed projection, and back to tokens."""
    heads, width = artefact().spec.num_heads, 4
    dim = heads * width
    constants = {
        "w": noise(dim, 3 * dim),
        "split": np.array([0, 5, 3, heads, width]),
        "merge": np.array([0, 5, dim]),
        "axis": np.array([0]),
        **{f"n{n}": np.array([n]) for n in range(4)},
    }
    thirds = " ".join(
        f"s{part} = Slice(h, n{n}, n{int(n) + 1}, axis) {part} = Squeeze(s{part}, axis)"
        for part, n in zip("qkv", order, strict=True)
    )
    graph = graph_of(
        f"(float[b, 5, {dim}] x) => (float[b, 5, {dim}] y) {{ p = MatMul(x, w)"
        " g = Reshape(p, split) h = Transpose <perm = [2, 0, 3, 1, 4]> (g)"
        f" {thirds} u = Abs(q) context_01 = star.Attention <scale = 0.5> ({query}, k, v)"
        " t = Transpose <perm = [0, 2, 1, 3]> (context_01) z = Reshape(t, merge) y = Abs(z) }",
        constants,
    )
    # Shape inference stops at markers; the exporter knows what they give.
    for name, channels in (("z", dim), ("p", 3 * dim)):
        graph.tensors()[name].to_variable(np.float32, ["b", 5, channels])
    assert applied(fuse_attention, graph) == fused
    assert operators(graph)["MatMul"] == 1 + 2 * fused


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
    np.testing.assert_allclose(run(graph, **feed)["y"], expected, atol=1e-5)


def test_attention_on_heads_is_left_to_other_passes() -> None:
    heads = "float[b, 2, 5, 3]"
    graph = graph_of(
        f"({heads} q, {heads} k, {heads} v) => ({heads} y) {{ y = Attention (q, k, v) }}"
    )
    assert applied(split_heads, graph) == 0


def masked(kind: str = "bool") -> gs.Graph:
    return graph_of(
        f"(float[b, 3, 6] q, {TOKENS} k, {TOKENS} v, {kind}[b, 1, 1, 5] m) => (float[b, 3, 6] y) "
        f"{{ y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v, m) }}"
    )


@pytest.mark.ort
def test_the_mask_has_a_row_for_every_query() -> None:
    graph = masked()
    assert applied(spread_masks, graph) == 1
    query, key, value = noise(2, 3, 6), noise(2, 5, 6), noise(2, 5, 6)
    mask = np.array([[[[True, True, False, True, False]]], [[[True] * 5]]])
    graph.outputs.append(graph.nodes[-1].inputs[3])
    graph.outputs[-1].shape = ["b", 1, 3, 5]
    results = run(graph, q=query, k=key, v=value, m=mask)
    np.testing.assert_array_equal(
        results["y/spread_mask"], np.broadcast_to(mask, (2, 1, 3, 5))
    )


@pytest.mark.ort
def test_a_float_mask_has_a_row_for_every_head() -> None:
    graph = masked("float")
    graph.nodes[0].attrs["scale"] = 3**-0.5  # the default of this head's size
    assert applied(masks_by_head, graph) == 1
    assert applied(masks_by_head, masked()) == 0  # one that leaves keys out
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
    by_query = masked("float")
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
