"""Two TopK in a row: the first need not sort, or the second goes."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.sort_once import sort_once
from tests.lowering.graphs import applied, artefact, graph_of, noise, run
from tests.lowering.models import RATES, lowered, star
from tests.lowering.targets import operators_of

K = np.array([3])


def chosen(name: str, more: str = "", outputs: str = "") -> gs.Graph:
    """Survivors in ascending position, as `expand_selection` leaves them."""
    graph = graph_of(
        f"(float[b, 8] score) => (int64[b, 3] survivors{outputs}) {{"
        " best, order = TopK <axis = 1, largest = 1, sorted = 1> (score, k)"
        " kept, rank = TopK <axis = 1, largest = 0, sorted = 1> (order, k)"
        f" survivors = Identity(kept) {more} }}",
        {"k": K},
    )
    graph.tensors()["kept"].name = name
    return graph


@pytest.mark.ort
def test_the_first_need_not_sort_for_the_second() -> None:
    graph, score = chosen("keep_01"), noise(2, 8)
    assert applied(sort_once, graph, artefact(1)) == 1
    assert [node.attrs["sorted"] for node in graph.nodes if node.op == "TopK"] == [0, 1]
    expected = np.sort(np.argsort(-score, axis=1)[:, :3], axis=1)
    np.testing.assert_array_equal(run(graph, score=score)["survivors"], expected)


@pytest.mark.ort
def test_ranked_tokens_are_not_sorted_by_position() -> None:
    graph, score = chosen("keep_01/tokens"), noise(2, 8)
    assert applied(sort_once, graph, artefact(1)) == 1
    assert [node.op for node in graph.nodes] == ["TopK", "Identity"]
    np.testing.assert_array_equal(run(graph, score=score)["survivors"], np.argsort(-score, axis=1)[:, :3])


def test_scores_that_are_read_are_sorted() -> None:
    graph = chosen("keep_01", "scores = Identity(best)", ", float[b, 3] scores")
    assert applied(sort_once, graph, artefact(1)) == 0


def test_one_top_k_is_enough_behind_one_prefix_token() -> None:
    assert operators_of()["TopK"] == len(RATES)
    nodes = [node for node in lowered(star("registers")).graph.node if node.op_type == "TopK"]
    attributes = [{a.name: a.i for a in node.attribute} for node in nodes]
    assert [each["sorted"] for each in attributes] == [0, 1] * len(RATES)
    assert [each["largest"] for each in attributes] == [1, 0] * len(RATES)
