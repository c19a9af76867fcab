"""The lowered pairs of one layer on the runtime: who stays, and whom the others join."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.markers import DOMAIN, PAIR_TOKENS
from exporter.lowering.passes.expand_pairing import expand_pairing
from exporter.lowering.passes.expand_selection import expand_selection
from exporter.ops.pair_sets import joined_patches
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from tests.lowering.graphs import applied, artefact, operators
from tests.ops.pairing_reference import reference_pairs

HEADS, WIDTH = artefact().spec.num_heads, 4

pytestmark = pytest.mark.ort


def pairing(patches: int, kept: int, prefix: int, packed: bool) -> gs.Graph:
    """A graph of the marker alone, expanded; keys by head, or as the projection gives them."""
    tokens = prefix + patches
    shape = ["batch", tokens, HEADS * WIDTH] if packed else ["batch", HEADS, tokens, WIDTH]
    key = gs.Variable("key", np.float32, shape)
    keep = gs.Variable("keep_01", np.int64, ["batch", kept])
    into = gs.Variable("into_01", np.int64, ["batch", patches])
    unread = [gs.Variable("score", np.float32), gs.Variable("gap", np.float32)]
    attributes = {"kept": kept, "num_prefix_tokens": prefix}
    node = gs.Node(PAIR_TOKENS, "pair", attributes, [key], [keep, into, *unread], domain=DOMAIN)
    graph = gs.Graph([node], [key], [keep, into], opset=20)
    assert applied(expand_pairing, graph, artefact(1)) == 1
    assert applied(expand_selection, graph) == (kept > len(joined_patches(patches, kept, prefix)))
    return graph


def run(graph: gs.Graph, key: np.ndarray) -> dict[str, np.ndarray]:
    model = gs.export_onnx(graph)
    model.ir_version = 10
    onnx.checker.check_model(model)
    with OnnxRuntimeRunner(model.SerializeToString(), name="pairing") as runner:
        return runner.run({"key": key})


@pytest.mark.parametrize("packed", [False, True], ids=["by head", "packed"])
@pytest.mark.parametrize("patches", [8, 9])
@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_the_numpy_reference_is_computed(prefix: int, patches: int, packed: bool) -> None:
    alternating = len(joined_patches(patches, patches, prefix))
    for kept in (1, 2, alternating - 1, alternating, alternating + 2, patches - 1):
        keys = np.random.default_rng(kept).standard_normal((3, HEADS, prefix + patches, WIDTH))
        keys = keys.astype(np.float32)
        fed = keys.transpose(0, 2, 1, 3).reshape(3, prefix + patches, -1) if packed else keys
        results = run(pairing(patches, kept, prefix, packed), fed)
        for image in range(3):
            expected = reference_pairs(keys[image], kept, prefix)
            np.testing.assert_array_equal(results["keep_01"][image], expected.index)
            np.testing.assert_array_equal(results["into_01"][image], expected.into)


def test_of_equal_cosines_the_lower_position_stays_and_is_joined() -> None:
    directions = np.eye(WIDTH, dtype=np.float32)[np.random.default_rng(0).integers(0, 2, (8, 10))]
    keys = np.repeat(directions[:, None], HEADS, axis=1)
    results = run(pairing(9, 7, 1, packed=False), keys)
    for image in range(8):
        expected = reference_pairs(keys[image], 7, 1)
        np.testing.assert_array_equal(results["keep_01"][image], expected.index)
        np.testing.assert_array_equal(results["into_01"][image], expected.into)


def test_the_sets_are_slices_and_one_product_compares_them() -> None:
    counts = operators(pairing(9, 7, 1, packed=False))
    assert (counts["MatMul"], counts["ArgMax"], counts["TopK"]) == (1, 1, 2)
    assert operators(pairing(9, 5, 1, packed=False))["TopK"] == 0


def test_without_pairs_nothing_changes() -> None:
    graph = gs.Graph([], [], [], opset=20)
    assert applied(expand_pairing, graph, artefact(1)) == 0
