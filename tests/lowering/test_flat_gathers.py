"""One Gather over all tokens in the place of GatherND: the same rows, where sizes are known."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.artefact import Artefact
from exporter.lowering.passes.flat_gathers import flat_gathers
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import keep_everything
from exporter.targets import ONNXRUNTIME
from tests.vits import make_vit

RNG = np.random.default_rng(0)
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


def run(graph: gs.Graph, batch: int) -> dict[str, np.ndarray]:
    model = gs.export_onnx(graph)
    model.ir_version = 10
    feed: dict[str, np.ndarray] = {
        "images": RNG.standard_normal((batch, TOKENS, DIM)).astype(np.float32),
        "rows": np.stack([RNG.permutation(TOKENS)[:KEPT, None] for _ in range(batch)]),
    }
    with OnnxRuntimeRunner(model.SerializeToString(), name="gathers") as runner:
        return {**feed, **runner.run(feed)}


def apply(graph: gs.Graph) -> int:
    spec = make_vit().spec
    changed = flat_gathers(graph, Artefact(spec, keep_everything(spec), ONNXRUNTIME))
    graph.cleanup().toposort()
    return changed


@pytest.mark.ort
@pytest.mark.parametrize("batch", [1, 3])
def test_the_same_rows(batch: int) -> None:
    graph = gathers()
    assert apply(graph) == 2
    result = run(graph, batch)
    expected = np.take_along_axis(result["images"], result["rows"], axis=1)
    np.testing.assert_array_equal(result["once"], expected)
    np.testing.assert_array_equal(result["twice"], 2 * expected)


def test_one_index_for_all_that_takes_the_same_rows() -> None:
    graph = gathers()
    apply(graph)
    ops = [node.op for node in graph.nodes]
    assert ops.count("Gather") == 2
    assert ops.count("Mul") == 1
    assert "GatherND" not in ops


def test_tokens_that_are_not_counted_are_left_alone() -> None:
    graph = gathers("tokens")
    assert apply(graph) == 0
    assert [node.op for node in graph.nodes].count("GatherND") == 2
