"""Fused scores in fewer nodes: the same order of patches."""

from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.evaluation.parity.check_model import check
from exporter.lowering.passes.shorten_scores import shorten_scores
from exporter.pruning.pruned_vit import PrunedViT
from tests.lowering.graphs import applied, graph_of, noise, operators, run
from tests.lowering.models import RATES, lowered, star
from tests.lowering.targets import operators_of
from tests.vits import random_images

PATCHES, KEPT = 12, 6
ALPHA = np.array(0.3, np.float32)

# The inter-layer scores of patches that all stand in their places, and those looked up by position.
IN_PLACE = "inter = Expand(table, shape)", {"shape": np.array([3, PATCHES])}
BY_POSITION = "index = Unsqueeze(positions, last) inter = GatherND(table, index)", {"last": np.array([-1])}


def scored(table: np.ndarray, form: tuple[str, dict[str, np.ndarray]], alpha: np.ndarray = ALPHA) -> gs.Graph:
    """A score in the exporter's words; the marker behind it stands for what chooses."""
    lookup, constants = form
    positions = ", int64[b, 12] positions" if "positions" in lookup else ""
    return graph_of(
        f"(float[b, {PATCHES}] intra{positions}) => (int64[b, {KEPT}] keep) {{"
        f" log = Log(intra) weighed = Mul(log, alpha) {lookup} score = Add(weighed, inter)"
        f" keep = star.KeepTopK <k = {KEPT}> (score) }}",
        {"table": table, "alpha": alpha, **constants},
    )


def order_of(graph: gs.Graph, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The order of the patches by the tensor that the marker reads."""
    graph = graph.copy()
    score = graph.nodes[-1].inputs[0]
    score.shape = ["b", PATCHES]
    graph.outputs = [score]
    return np.argsort(-run(graph.cleanup(), **feed)[score.name], axis=1, kind="stable")


@pytest.mark.ort
@pytest.mark.parametrize(
    ("form", "left"),
    [(IN_PLACE, {"Mul": 1}), (BY_POSITION, {"Gather": 1, "Mul": 1})],
    ids=["in place", "by position"],
)
@pytest.mark.parametrize("span", [3.0, 60.0], ids=["a product", "a sum of logarithms"])
def test_the_order_stays(form: tuple[str, dict[str, np.ndarray]], left: dict[str, int], span: float) -> None:
    table = np.linspace(-span, 0, PATCHES, dtype=np.float32)
    one, other = scored(table, form), scored(table, form)
    assert applied(shorten_scores, other) == 1
    counted = operators(other)
    del counted["KeepTopK"]
    if span > 10:
        left = {**{name: 1 for name in left if name != "Mul"}, "Log": 1, "Add": 1}
    assert counted == left
    positions = np.stack([np.random.default_rng(image).permutation(PATCHES) for image in range(3)])
    feed = {"intra": np.exp(noise(3, PATCHES)), **({"positions": positions} if form is BY_POSITION else {})}
    np.testing.assert_array_equal(order_of(other, feed), order_of(one, feed))


@pytest.mark.parametrize(
    ("table", "alpha"),
    [(noise(PATCHES), np.array(0.0, np.float32)), (noise(1, PATCHES), ALPHA)],
    ids=["no weight", "a table of rows"],
)
def test_other_scores_are_left_alone(table: np.ndarray, alpha: np.ndarray) -> None:
    assert applied(shorten_scores, scored(table, IN_PLACE, alpha)) == 0


def test_a_score_that_is_no_sum_is_left_alone() -> None:
    graph = graph_of("(float[b, 12] s) => (int64[b, 6] keep) { keep = star.KeepTopK <k = 6> (s) }")
    assert applied(shorten_scores, graph) == 0


def test_scores_are_products_without_a_further_axis() -> None:
    short, long = operators_of("rank_prefix"), operators_of("shorten_scores", "rank_prefix")
    assert (short["Log"], long["Log"]) == (0, len(RATES))
    assert short["Expand"] < long["Expand"]
    assert short["Unsqueeze"] < long["Unsqueeze"]
    assert short["GatherND"] < long["GatherND"]
    assert short.total() < long.total()


def test_scores_that_a_product_would_lose_stay_logarithms() -> None:
    far = np.geomspace(1e-30, 1.0, star().vit.spec.num_patches)
    inter = np.tile(far, (star().vit.spec.depth, 1))
    pruned = PrunedViT(star().vit, replace(star().schedule, alpha=0.15), inter).eval()
    assert operators_of(pruned=pruned)["Log"] == len(RATES)
    images = random_images(pruned.vit, 16).numpy()
    assert check(pruned, lowered(pruned), images).passed
