"""The passes of top-k and of the gathers of survivors."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.targets import OPENVINO
from exporter.core.lower.markers import TAKE_TOKENS
from exporter.core.lower.passes.selection import (
    expand_packing,
    expand_selection,
    flat_gathers,
    select_early,
)
from exporter.core.prune.ops.selection import keep_top_k, take_tokens
from tests.core.lower.graphs import (
    RNG,
    applied,
    graph_of,
    noise,
    operators,
    run,
)
from tests.core.lower.models import lowered, star, without
from tests.core.prune.ops.references import drawn_choice, packed


def selection(patches: int, k: int, prefix: int) -> gs.Graph:
    """A graph of the two markers alone, expanded."""
    graph = graph_of(
        f"(float[b, {patches}] score, float[b, {prefix + patches}, 2] tokens)"
        f" => (int64[b, {k}] keep, float[b, {prefix + k}, 2] taken) {{"
        f" keep = star.KeepTopK <k = {k}> (score)"
        f" taken = star.TakeTokens <num_prefix_tokens = {prefix}> (tokens, keep) }}",
        opset=20,
    )
    assert applied(expand_selection, graph) == 2
    return graph


@pytest.mark.ort
@given(data=st.data())
def test_ties_go_to_the_lower_position_and_survivors_ascend(
    data: st.DataObject,
) -> None:
    patches = data.draw(st.integers(1, 40))
    k, prefix = data.draw(st.integers(1, patches)), data.draw(st.integers(0, 3))
    rows = data.draw(
        st.lists(
            st.lists(st.integers(0, 3), min_size=patches, max_size=patches),
            min_size=1,
            max_size=3,
        )
    )
    score = torch.tensor(rows, dtype=torch.float32)
    tokens = torch.randn(len(rows), prefix + patches, 2)
    results = run(
        selection(patches, k, prefix), score=score.numpy(), tokens=tokens.numpy()
    )
    keep = keep_top_k(score, k)
    np.testing.assert_array_equal(results["keep"], keep.numpy())
    np.testing.assert_array_equal(
        results["taken"], take_tokens(tokens, keep, prefix).numpy()
    )


WEIGHTS = {
    "w": noise(6, 6),
    "b": noise(6),
    "s": noise(6),
    "half": np.array(0.5, np.float32),
}
TAKING = "t = star.TakeTokens <num_prefix_tokens = 1> (y, keep)"
KEEP = np.array([[0, 3], [1, 2]])
ATTENTION = "c = Attention <q_num_heads = 2, kv_num_heads = 2> (x, k, k)"

CASES = {
    "a sum of two": ("a = Abs(x) y = Add(x, a)", ["Abs"], 2),
    "a linear layer": ("a = Abs(x) p = MatMul(a, w) y = Add(p, b)", ["Abs"], 1),
    "a scaled residual": (
        "a = Abs(x) p = MatMul(a, w) m = Mul(p, s) y = Add(m, x)",
        ["Abs"],
        2,
    ),
    "a norm over channels": ("a = Abs(x) y = LayerNormalization(a, s, b)", ["Abs"], 1),
    "a division": ("a = Abs(x) y = Div(a, half)", ["Abs"], 1),
    "an attention's query": (f"k = Abs(x) {ATTENTION} y = Add(c, b)", ["Abs"], 1),
}


def block(body: str, reads: str = "", outputs: str = "") -> gs.Graph:
    return graph_of(
        f"(float[n, 5, 6] x, int64[n, 2] keep) => (float[n, 3, 6] t{outputs}) {{ {body} {TAKING} {reads} }}",
        WEIGHTS,
    )


@pytest.mark.ort
@pytest.mark.parametrize("case", CASES)
def test_the_same_rows_from_fewer_of_them(case: str) -> None:
    body, whole, taken = CASES[case]
    one, other, x = block(body), block(body), noise(2, 5, 6)
    assert applied(select_early, other) == 1
    sources = [node.inputs[0] for node in other.nodes if node.op == TAKE_TOKENS]
    assert len(sources) == taken
    assert all(not source.inputs or source.inputs[0].op in whole for source in sources)
    for graph in (one, other):
        applied(expand_selection, graph)
    expected, got = (run(graph, x=x, keep=KEEP)["t"] for graph in (one, other))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "reads", "outputs"),
    [
        ("y = Softmax <axis = 1> (x)", "", ""),  # mixes rows
        ("y = Add(x, x)", "z = Abs(y)", ", float[n, 5, 6] z"),  # read by something else
    ],
    ids=["rows mixed", "read whole"],
)
def test_what_cannot_move_stays(body: str, reads: str, outputs: str) -> None:
    graph = block(body, reads, outputs)
    assert applied(select_early, graph) == 0
    assert [node.op for node in graph.nodes if node.domain] == [TAKE_TOKENS]


def test_survivors_are_taken_before_their_queries_meet_the_keys() -> None:
    spec, keep = star().vit.spec, star().schedule.keep
    graph = gs.import_onnx(
        onnx.shape_inference.infer_shapes(lowered(star()), data_prop=True)
    )
    tensors = graph.tensors()
    for layer in (1, 2, 4):
        query, key, _ = tensors[f"context_{layer:02d}"].inputs[0].inputs
        before = (spec.num_patches, *keep)[layer - 1]
        assert query.shape == [
            "batch",
            spec.num_prefix_tokens + keep[layer - 1],
            spec.dim,
        ]
        assert key.shape == ["batch", spec.num_prefix_tokens + before, spec.dim]
        assert query.inputs[0].op == "GatherND"
        rows = tensors[f"keep_{layer:02d}/rows"]
        assert [reader.op for reader in rows.outputs] == ["GatherND"] * 2


def test_without_a_class_row_survivors_are_taken_before_their_projection() -> None:
    graph = gs.import_onnx(lowered(star(scorer="inter"), without("linear_as_gemm")))
    query = graph.tensors()["context_01"].inputs[0].inputs[0]
    product = query.inputs[0].inputs[0]
    assert [query.inputs[0].op, product.inputs[0].op] == ["Add", "MatMul"]
    assert product.inputs[0].inputs[0].inputs[0].op == "GatherND"


TOKENS, KEPT, DIM = 7, 3, 4


def gathers(tokens: int | str = TOKENS) -> gs.Graph:
    """Two tensors of tokens of which the same rows are taken."""
    taken = ", ".join(f"float[b, {KEPT}, {DIM}] {name}" for name in ("once", "twice"))
    return graph_of(
        f"(float[b, {tokens}, {DIM}] images, int64[b, {KEPT}, 1] rows) => ({taken}) {{"
        " doubled = Add(images, images) once = GatherND <batch_dims = 1> (images, rows)"
        " twice = GatherND <batch_dims = 1> (doubled, rows) }",
        opset=20,
    )


@pytest.mark.ort
@pytest.mark.parametrize("batch", [1, 3])
def test_the_same_rows(batch: int) -> None:
    graph = gathers()
    assert applied(flat_gathers, graph) == 2
    counts = operators(graph)  # one index for all that takes the same rows
    assert (counts["Gather"], counts["Mul"], counts["GatherND"]) == (2, 1, 0)
    rows = np.stack([RNG.permutation(TOKENS)[:KEPT, None] for _ in range(batch)])
    given = {"images": noise(batch, TOKENS, DIM), "rows": rows}
    result = run(graph, **given)
    expected = np.take_along_axis(given["images"], given["rows"], axis=1)
    np.testing.assert_array_equal(result["once"], expected)
    np.testing.assert_array_equal(result["twice"], 2 * expected)


def test_tokens_that_are_not_counted_are_left_alone() -> None:
    graph = gathers("tokens")
    assert applied(flat_gathers, graph) == 0
    assert [node.op for node in graph.nodes].count("GatherND") == 2


def test_openvino_gathers_over_the_whole_batch() -> None:
    nodes = [node.op_type for node in lowered(star(), OPENVINO).graph.node]
    assert "GatherND" not in nodes and nodes.count("Attention") == 4


@pytest.mark.ort
@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_in_standard_operators(seed: int, prefix: int) -> None:
    graph = graph_of(
        "(int64[b, t] before, int64[b, k] index, int64[b] count)"
        " => (int64[n] rows, bool[b, s] live, int64[b, s] slots, int64[n] places) {"
        f" rows, live, slots, places = star.PackTokens <num_prefix_tokens = {prefix}> (before, index, count) }}"
    )
    assert applied(expand_packing, graph) == 1
    slots, index, count = drawn_choice(np.random.default_rng(seed), prefix)
    found = run(graph, before=slots, index=index, count=count)
    for name, expected in zip(found, packed(slots, index, count, prefix), strict=True):
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


@pytest.mark.parametrize(("axis", "rows"), [(-1, 1), (0, 0)])
def test_a_table_is_read_by_gather(axis: int, rows: int) -> None:
    """A score, or a row, by the position of each patch."""
    text = """(float[b, 6] x) => (float[b, k, 2] y)
        { values, order = TopK <axis = 1> (x, three) index = Unsqueeze(order, last) y = GatherND(table, index) }"""
    constants = {"three": np.array([3]), "last": np.array([axis]), "table": noise(6, 2)}
    if not rows:
        text = text.replace("float[b, k, 2] y", "float[l, b, m] y")
        constants["table"] = noise(6, 6, 6, 6)
    graph = graph_of(text, constants)
    feed = {"x": noise(4, 6)}
    expected = run(graph, **feed)["y"]
    assert applied(flat_gathers, graph) == rows
    np.testing.assert_array_equal(run(graph, **feed)["y"], expected)
    assert operators(graph)["Gather"] == rows
