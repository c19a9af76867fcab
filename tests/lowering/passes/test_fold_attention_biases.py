"""Biases of an attention's projections: the key's goes, the value's moves, and the numbers stay."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.fold_attention_biases import fold_attention_biases
from tests.lowering.graphs import applied, graph_of, noise, operators, run
from tests.lowering.models import lowered, star
from tests.lowering.targets import without

TOKENS = "float[b, 5, 6]"
WEIGHTS = {**{f"w{part}": noise(6, 6) for part in "qkvo"}, **{f"b{part}": noise(6) for part in "qkvo"}}
PARTS = " ".join(f"m{part} = MatMul(x, w{part}) {part} = Add(m{part}, b{part})" for part in "qkv")
ATTENTION = "c = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v)"


def block(between: str = "n = Identity(c)", outputs: str = f"{TOKENS} y") -> gs.Graph:
    read = "n" if between.startswith("n") else "c"
    ending = f"mo = MatMul({read}, wo) y = Add(mo, bo)"
    return graph_of(f"({TOKENS} x) => ({outputs}) {{ {PARTS} {ATTENTION} {between} {ending} }}", WEIGHTS)


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
    one, other, x = block(between, outputs), block(between, outputs), noise(2, 5, 6)
    assert applied(fold_attention_biases, other) == changed
    assert operators(one)["Add"] - operators(other)["Add"] == changed
    expected = run(one, x=x)
    for name, result in run(other, x=x).items():
        np.testing.assert_allclose(result, expected[name], rtol=1e-4, atol=1e-4)


def test_compared_keys_keep_their_bias() -> None:
    """A bias changes the cosines of pairs; that of the values moves all the same."""
    graph = block("keep, into, score, gap = star.PairTokens <kept = 3, num_prefix_tokens = 1> (k)")
    graph.outputs += [each for node in graph.nodes if node.op == "PairTokens" for each in node.outputs[:1]]
    assert applied(fold_attention_biases, graph) == 1
    (node,) = (each for each in graph.nodes if each.op == "Attention")
    assert [each.inputs[0].op for each in node.inputs] == ["Add", "Add", "MatMul"]


def test_the_query_keeps_its_bias() -> None:
    graph = block("")
    applied(fold_attention_biases, graph)
    (node,) = (each for each in graph.nodes if each.op == "Attention")
    assert [each.inputs[0].op for each in node.inputs] == ["Add", "MatMul", "MatMul"]


def test_only_the_query_keeps_a_bias_of_its_own() -> None:
    graph = gs.import_onnx(lowered(star(), without("linear_as_gemm")))
    for node in (node for node in graph.nodes if node.op == "Attention"):
        assert [tensor.inputs[0].op for tensor in node.inputs[1:]] == ["MatMul", "MatMul"]
