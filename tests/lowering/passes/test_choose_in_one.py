"""Class row, score and retention in one node of our library, and every other form left as it is."""

from collections import Counter

import numpy as np
import pytest

from exporter.lowering.passes.choose_in_one import choose_in_one
from exporter.targets import ONNXRUNTIME_OPS
from tests.lowering.choosing import ALPHA, HEADS, KEPT, OF, PATCHES, PREFIX, by_mass, top_k
from tests.lowering.graphs import applied, graph_of, operators
from tests.lowering.models import RATES, lowered, star

TABLE = np.linspace(-3.0, 0.0, PATCHES, dtype=np.float32)


def test_star_is_one_node() -> None:
    graph = top_k(TABLE)
    assert applied(choose_in_one, graph, OF) == 1
    assert operators(graph) == Counter({"ChooseTopK": 1, "Identity": 1})
    (node,) = (each for each in graph.nodes if each.domain)
    assert [each.name for each in node.inputs] == ["query", "key", "keep/weights", "positions"]
    np.testing.assert_allclose(node.inputs[2].values, np.exp(TABLE), rtol=1e-6)
    assert node.attrs == {
        "scale": 0.5,
        "num_class_tokens": 1,
        "alpha": ALPHA,
        "heads": HEADS,
        "num_prefix_tokens": PREFIX,
        "k": KEPT,
    }
    assert [(each.name, each.shape) for each in node.outputs] == [
        ("keep", ["b", KEPT]),
        ("keep/rows", ["b", PREFIX + KEPT, 1]),
        ("keep/positions", ["b", KEPT]),
    ]


def test_a_star_is_one_node() -> None:
    graph = by_mass(TABLE, 0.75)
    assert applied(choose_in_one, graph, OF) == 1
    assert operators(graph) == Counter({"ChooseByMass": 1, "Identity": 1})
    (node,) = (each for each in graph.nodes if each.domain)
    assert [each.name for each in node.inputs] == ["query", "key", "keep/weights", "positions", "count"]
    assert node.attrs["mass"] == 0.75
    assert [each.name for each in node.outputs] == ["keep", "kept", "keep/positions"]


@pytest.mark.parametrize("operator", ["Clip", "Softmax", "ReduceMean"])
def test_a_score_of_another_form_is_left_alone(operator: str) -> None:
    graph = top_k(TABLE)
    (node,) = (each for each in graph.nodes if each.op == operator)
    node.op, node.attrs, node.inputs = "Identity", {}, [node.inputs[0]]
    before = operators(graph)
    assert applied(choose_in_one, graph, OF) == 0
    assert operators(graph) == before


def test_a_score_that_no_attention_gives_is_left_alone() -> None:
    graph = graph_of("(float[b, 12] s) => (int64[b, 6] keep) { keep = star.KeepTopK <k = 6> (s) }")
    assert applied(choose_in_one, graph, OF) == 0


def test_tokens_as_the_projection_leaves_them_are_read() -> None:
    """After `fuse_attention`; the gathers take the rows that the node gives."""
    graph = lowered(star(), ONNXRUNTIME_OPS).graph
    shapes = {each.name: len(each.type.tensor_type.shape.dim) for each in graph.value_info}
    chosen = [node for node in graph.node if node.op_type == "ChooseTopK"]
    assert [[shapes[name] for name in node.input[:2]] for node in chosen] == [[3, 3]] * len(RATES)
    rows = {node.output[1] for node in chosen}
    assert rows == {node.input[1] for node in graph.node if node.op_type == "GatherND"}
    # A layer that follows reads the positions that the one before it gave.
    first, second, third = chosen
    assert (second.input[3], third.input[3]) == (first.output[0], second.output[2])
