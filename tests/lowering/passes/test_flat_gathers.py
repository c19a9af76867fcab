"""One Gather over all tokens in the place of GatherND: the same rows, where sizes are known."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.flat_gathers import flat_gathers
from tests.lowering.graphs import RNG, applied, noise, run

TOKENS, KEPT, DIM = 7, 3, 4


def gathers(tokens: int | str = TOKENS) -> gs.Graph:
    """Two tensors of tokens of which the same rows are taken."""
    images = gs.Variable("images", np.float32, ["batch", tokens, DIM])
    rows = gs.Variable("rows", np.int64, ["batch", KEPT, 1])
    doubled = gs.Variable("doubled", np.float32, ["batch", tokens, DIM])
    taken = [gs.Variable(name, np.float32, ["batch", KEPT, DIM]) for name in ("once", "twice")]
    nodes = [gs.Node("Add", "double", {}, [images, images], [doubled])]
    for source, result in zip((images, doubled), taken, strict=True):
        nodes.append(gs.Node("GatherND", result.name, {"batch_dims": 1}, [source, rows], [result]))
    return gs.Graph(nodes, [images, rows], taken, opset=20)


def feed(batch: int) -> dict[str, np.ndarray]:
    rows = np.stack([RNG.permutation(TOKENS)[:KEPT, None] for _ in range(batch)])
    return {"images": noise(batch, TOKENS, DIM), "rows": rows}


@pytest.mark.ort
@pytest.mark.parametrize("batch", [1, 3])
def test_the_same_rows(batch: int) -> None:
    graph = gathers()
    assert applied(flat_gathers, graph) == 2
    given = feed(batch)
    result = run(graph, **given)
    expected = np.take_along_axis(given["images"], given["rows"], axis=1)
    np.testing.assert_array_equal(result["once"], expected)
    np.testing.assert_array_equal(result["twice"], 2 * expected)


def test_one_index_for_all_that_takes_the_same_rows() -> None:
    graph = gathers()
    applied(flat_gathers, graph)
    ops = [node.op for node in graph.nodes]
    assert ops.count("Gather") == 2
    assert ops.count("Mul") == 1
    assert "GatherND" not in ops


def test_tokens_that_are_not_counted_are_left_alone() -> None:
    graph = gathers("tokens")
    assert applied(flat_gathers, graph) == 0
    assert [node.op for node in graph.nodes].count("GatherND") == 2
