"""A top-k, and the rows of tokens that follow from it, in one node with the attributes of a plugin."""

from collections import Counter

from exporter.lowering.passes.expand_selection import expand_selection
from exporter.lowering.passes.select_in_one import select_in_one
from tests.lowering.graphs import applied, artefact, graph_of, operators

OF = artefact(1)  # one prefix token


def test_the_gathers_take_the_rows_that_the_node_gives() -> None:
    graph = graph_of(
        "(float[b, 12] s, float[b, 13, 2] t) => (float[b, 6, 2] taken, int64[b, 5] keep) {"
        " keep = star.KeepTopK <k = 5> (s) taken = star.TakeTokens <num_prefix_tokens = 1> (t, keep) }"
    )
    assert applied(select_in_one, graph, OF) == 1
    (node,) = (each for each in graph.nodes if each.op == "SelectTopK")
    assert node.domain == "star"
    assert node.attrs == {"k": 5, "num_prefix_tokens": 1, "plugin_version": "1", "plugin_namespace": "star"}
    assert [(each.name, each.shape) for each in node.outputs] == [
        ("keep", ["b", 5]),
        ("keep/rows", ["b", 6, 1]),
    ]
    assert applied(expand_selection, graph, OF) == 1
    assert operators(graph) == Counter({"SelectTopK": 1, "GatherND": 1})
    (gather,) = (each for each in graph.nodes if each.op == "GatherND")
    assert [each.name for each in gather.inputs] == ["t", "keep/rows"]


def test_other_retentions_are_left_alone() -> None:
    graph = graph_of(
        "(float[b, 12] s, int64[b] n) => (int64[b, w] keep, int64[b] count, int64 width)"
        " { keep, count, width = star.CdfRetain <mass = 0.5> (s, n) }"
    )
    assert applied(select_in_one, graph, OF) == 0
    assert operators(graph) == Counter({"CdfRetain": 1})
