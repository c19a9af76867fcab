"""The number of an image's keys for attention: the same attention as with the mask that says so."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.count_keys import count_keys
from tests.lowering.graphs import applied, graph_of, noise, operators, run
from tests.versions import counts_keys

TOKENS = "float[b, 5, 6]"
ATTENTION = "Attention <q_num_heads = 2, kv_num_heads = 2>"
CONSTANTS = {
    **{name: np.array(value) for name, value in (("zero", 0), ("one", 1), ("five", 5))},
    **{name: np.array(value) for name, value in (("column", [1]), ("over_heads", [1, 2]))},
}


def counted(live: str, *, start: str = "zero") -> gs.Graph:
    """Attention of three queries to five keys, of which an image has `n`."""
    return graph_of(
        f"(float[b, 3, 6] q, {TOKENS} k, {TOKENS} v, int64[b] n) => (float[b, 3, 6] y) {{"
        f" numbers = Range ({start}, five, one) own = Unsqueeze (n, column) live = {live}"
        f" mask = Unsqueeze (live, over_heads) y = {ATTENTION} (q, k, v, mask) }}",
        CONSTANTS,
    )


@pytest.mark.ort
def test_keys_behind_the_number_are_not_attended_to() -> None:
    counts_keys()
    graph = counted("Less (numbers, own)")
    assert applied(count_keys, graph) == 1
    assert operators(graph) == {"Attention": 1}
    assert graph.opset == 24
    query, key, value = noise(2, 3, 6), noise(2, 5, 6), noise(2, 5, 6)
    results = run(graph, q=query, k=key, v=value, n=np.array([5, 2]))["y"]
    for image, keys in enumerate((5, 2)):
        alone = graph_of(
            f"(float[b, 3, 6] q, float[b, {keys}, 6] k, float[b, {keys}, 6] v) => (float[b, 3, 6] y)"
            f" {{ y = {ATTENTION} (q, k, v) }}"
        )
        one = slice(image, image + 1)
        expected = run(alone, q=query[one], k=key[one, :keys], v=value[one, :keys])["y"]
        np.testing.assert_allclose(results[one], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("live", "start"), [("LessOrEqual (numbers, own)", "zero"), ("Less (numbers, own)", "one")]
)
def test_another_mask_is_left(live: str, start: str) -> None:
    graph = counted(live, start=start)
    before = operators(graph)
    assert applied(count_keys, graph) == 0
    assert (graph.opset, operators(graph)) == (23, before)


def packed(place: str) -> gs.Graph:
    """Two attentions over packed tokens in a grid, with an output of PackSurvivors as the mask."""
    return graph_of(
        f"({TOKENS} q, {TOKENS} k, {TOKENS} v, int64[b, t] before, int64[b, 4] index, int64[b] count)"
        f" => ({TOKENS} y) {{"
        " rows, live, slots, places = star.PackSurvivors <num_prefix_tokens = 1> (before, index, count)"
        f" marked = Cast <to = 9> (slots) mask = Unsqueeze ({place}, over_heads)"
        f" x = {ATTENTION} (q, k, v, mask) y = {ATTENTION} (x, k, v, mask) }}",
        CONSTANTS,
    )


def test_packed_tokens_are_counted_once() -> None:
    """The prefix token is one of them."""
    graph = packed("live")
    assert applied(count_keys, graph) == 2
    assert operators(graph) == {"Add": 1, "Attention": 2}
    (add,) = (node for node in graph.nodes if node.op == "Add")
    assert (add.inputs[0].name, add.inputs[1].values) == ("count", 1)
    numbers = [node.inputs[6] for node in graph.nodes if node.op == "Attention"]
    assert numbers[0] is numbers[1] is add.outputs[0]


def test_another_output_of_the_packing_is_no_mask_of_first_keys() -> None:
    assert applied(count_keys, packed("marked")) == 0


def test_without_a_mask_nothing_changes() -> None:
    graph = graph_of(f"({TOKENS} q, {TOKENS} k, {TOKENS} v) => ({TOKENS} y) {{ y = {ATTENTION} (q, k, v) }}")
    assert applied(count_keys, graph) == 0
    assert graph.opset == 23
