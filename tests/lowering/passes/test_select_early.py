"""Survivors taken early: before the sums and products of their rows, and never after what reads all rows."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.markers import TAKE_TOKENS
from exporter.lowering.passes.expand_selection import expand_selection
from exporter.lowering.passes.select_early import select_early
from tests.lowering.graphs import applied, graph_of, noise, run
from tests.lowering.models import lowered, star
from tests.lowering.targets import without

WEIGHTS = {"w": noise(6, 6), "b": noise(6), "s": noise(6), "half": np.array(0.5, np.float32)}
TAKING = "t = star.TakeTokens <num_prefix_tokens = 1> (y, keep)"
KEEP = np.array([[0, 3], [1, 2]])
ATTENTION = "c = Attention <q_num_heads = 2, kv_num_heads = 2> (x, k, k)"

CASES = {
    "a sum of two": ("a = Abs(x) y = Add(x, a)", ["Abs"], 2),
    "a linear layer": ("a = Abs(x) p = MatMul(a, w) y = Add(p, b)", ["Abs"], 1),
    "a scaled residual": ("a = Abs(x) p = MatMul(a, w) m = Mul(p, s) y = Add(m, x)", ["Abs"], 2),
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
    assert all(not each.inputs or each.inputs[0].op in whole for each in sources)
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
    graph = gs.import_onnx(onnx.shape_inference.infer_shapes(lowered(star()), data_prop=True))
    tensors = graph.tensors()
    for layer in (1, 2, 4):
        query, key, _ = tensors[f"context_{layer:02d}"].inputs[0].inputs
        before = (spec.num_patches, *keep)[layer - 1]
        assert query.shape == ["batch", spec.num_prefix_tokens + keep[layer - 1], spec.dim]
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
