"""Attention of packed tokens by TensorRT's operator: the numbers of a grid with a mask, and what is left of it."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.functions import with_functions
from exporter.lowering.passes.expand_attention import expand_attention
from exporter.lowering.passes.expand_packing import expand_packing
from exporter.lowering.passes.packed_attention import packed_attention
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from tests.lowering.graphs import applied, graph_of, operators

PREFIX, PATCHES = 2, 6
KEPT = [[0, 2, 3, 5], [4], [1, 2]]
HEADS = "float[b, 2, s, 3]"
NORM = "query = LayerNormalization (heads0, ones)"
CONSTANTS = {
    "split": np.array([0, 0, 3, 2, 3]),
    "dim": np.array([-1, 6]),
    "spread": np.array([1, 2]),
    "ones": np.ones(3, np.float32),
    **{f"at{place}": np.array([place]) for place in range(4)},
}


def attention(norm: str = "", back: str = "Gather <axis = 0> (flat, places)") -> gs.Graph:
    """Attention as torch exports it of packed tokens, projected to [n, 18]: 2 heads of 3 channels.

    `norm` is an operator on the query, "" for none; `back` is what packs the context again.
    """
    thirds = " ".join(
        f"third{place} = Slice (turned, at{place}, at{place + 1}, at0)"
        f" heads{place} = Squeeze (third{place}, at0)"
        for place in range(3)
    )
    query = "query" if norm else "heads0"
    return graph_of(
        "(int64[b, t] before, int64[b, k] index, int64[b] count, float[n, 18] qkv)"
        " => (float[n, 6] context, float[b, 4, s] class_row_01)"
        f" <int64[b, s] slots, bool[b, s] live, int64[n] places, {HEADS} {query}, {HEADS} heads1> {{"
        f" rows, live, slots, places = star.PackTokens <num_prefix_tokens = {PREFIX}> (before, index, count)"
        " grid = Gather <axis = 0> (qkv, slots) cut = Reshape (grid, split)"
        f" turned = Transpose <perm = [2, 0, 3, 1, 4]> (cut) {thirds} {norm}"
        " mask = Unsqueeze (live, spread)"
        f" context_01 = star.Attention <scale = 0.7> ({query}, heads1, heads2, mask)"
        f" class_row_01 = star.ClassRow <scale = 0.7, num_class_tokens = 2> ({query}, heads1)"
        " back = Transpose <perm = [0, 2, 1, 3]> (context_01) flat = Reshape (back, dim)"
        f" context = {back} }}",
        CONSTANTS,
        opset=20,
    )


def computed(graph: gs.Graph) -> dict[str, np.ndarray]:
    """What ONNX Runtime makes of the graph, its other markers expanded."""
    applied(expand_attention, graph)
    applied(expand_packing, graph)
    model = with_functions(gs.export_onnx(graph), 20, ())
    model.ir_version = 10
    count = np.array([len(kept) for kept in KEPT])
    index = np.zeros((len(KEPT), count.max()), np.int64)
    for image, kept in enumerate(KEPT):
        index[image, : len(kept)] = kept
    slots = np.arange(len(KEPT) * (PREFIX + PATCHES)).reshape(len(KEPT), -1)
    qkv = np.random.default_rng(0).standard_normal((count.sum() + PREFIX * len(KEPT), 18)).astype(np.float32)
    with OnnxRuntimeRunner(model.SerializeToString(), name="small") as runner:
        return runner.run({"before": slots, "index": index, "count": count, "qkv": qkv})


@pytest.mark.ort
@pytest.mark.parametrize("norm", ["", NORM], ids=["heads of the projection", "a norm on the query"])
def test_it_computes_what_the_grid_does(norm: str) -> None:
    packed, grid = attention(norm), attention(norm)
    assert applied(packed_attention, packed) == 1
    found, expected = computed(packed), computed(grid)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-6, err_msg=name)


def test_heads_of_the_projection_are_never_in_a_grid() -> None:
    graph = attention()
    applied(packed_attention, graph)
    # The class tokens and the keys, for the class row: no third of the projection is cut from a grid.
    assert [node.inputs[0].name for node in graph.nodes if node.op == "Gather"] == [
        "context_01/heads",
        "context_01/heads_2",
    ]
    (node,) = (each for each in graph.nodes if each.domain == "trt")
    assert (node.op, node.name) == ("TRT_Attention", "context_01/attention")
    assert node.attrs == {"query_form": "packed_nhd", "kv_form": "packed_nhd", "causal_kind": "none"}
    query, _, _, mask, *lengths = node.inputs
    assert query.inputs[0].op == "Mul" and mask.is_empty()
    assert [each.name for each in lengths] == ["live/query_lengths", "live/kv_lengths"]
    assert [each.shape for each in node.outputs] == [["n", 2, 3]]


def test_a_normed_query_is_taken_from_the_grid() -> None:
    graph = attention(NORM)
    applied(packed_attention, graph)
    taken = [node.inputs[1].name for node in graph.nodes if node.op == "Gather"]
    assert taken == ["slots", "places", "places", "places"]
    assert operators(graph)["LayerNormalization"] == 1


def test_tokens_that_stay_in_a_grid_are_left_to_a_later_pass() -> None:
    graph = attention(back="Identity (flat)")
    assert applied(packed_attention, graph) == 0
    assert [node.op for node in graph.nodes if node.domain] == ["PackTokens", "Attention", "ClassRow"]
