"""Targets against each other, on models of a few nodes and a clock that a test turns."""

import itertools

import pytest

from exporter.errors import RecipeError
from exporter.records import Pair
from exporter.targets import ONNXRUNTIME, OPENVINO
from exporter.vocabulary import Method
from exporter.workflows.best import choose, measure_all
from exporter.workflows.measuring import Lowered
from exporter.workflows.recipe import Recipe
from exporter.workflows.requests import Measuring
from tests.evaluation.parity.models import images
from tests.tiny_onnx import linear_classifier, pruned_classifier

MODELS = {
    target.name: Pair(Lowered(linear_classifier(), target), Lowered(pruned_classifier(), target))
    for target in (ONNXRUNTIME, OPENVINO)
}


@pytest.mark.ort
def test_all_are_measured_in_turns_against_one_base() -> None:
    # Every run takes as long as the one before and a tenth more.
    times = itertools.accumulate(1.1**step for step in itertools.count())
    speeds = measure_all(MODELS, images(2), Measuring(batch=2, rounds=5, threads=1), times.__next__)
    assert speeds.keys() == MODELS.keys()
    base = speeds["onnxruntime-fp32"]
    assert base.speedup == base.total_gain
    for speed in speeds.values():
        dense, pruned = speed.throughput.dense, speed.throughput.pruned
        assert len(dense.rounds_ms) == len(pruned.rounds_ms) == 5
        ratios = [a / b for a, b in zip(dense.rounds_ms, pruned.rounds_ms, strict=True)]
        assert min(ratios) <= speed.speedup.median <= max(ratios)
        gains = [a / b for a, b in zip(base.throughput.dense.rounds_ms, pruned.rounds_ms, strict=True)]
        assert min(gains) <= speed.total_gain.median <= max(gains)


@pytest.mark.parametrize(
    ("recipe", "max_drop", "message"),
    [
        (Recipe(method=Method.A_STAR, rho=0.5), None, "best | got a-star | need star"),
        (Recipe(rho=0.5), -1.0, "max_drop | got -1.0"),
        (Recipe(rho=0.5), float("nan"), "max_drop | got nan"),
        (Recipe(rho=0.5, rounds=0), None, "--rounds"),
        (Recipe(), None, "rho"),
        (Recipe(method=Method.STAR, rho=0.5), None, "--calibration"),
        # ToMe wants no calibration, but a model.
        (Recipe(method=Method.TOME, rho=0.5), None, "--model"),
    ],
)
def test_what_is_refused_before_anything_is_loaded(
    recipe: Recipe, max_drop: float | None, message: str
) -> None:
    with pytest.raises(RecipeError) as error:
        choose(recipe, max_drop)
    assert message in str(error.value)
