"""The Monte-Carlo report: seeded, its shares add up, and it sees what noise can change."""

from dataclasses import replace

import pytest

from exporter.depth.predictor import Sample
from exporter.depth.robustness import DEVIATION, NoiseSettings, Robustness, deviations_of, robustness
from exporter.errors import DepthError, RecipeError
from tests.depth.published import DEPTH, SAMPLES


def test_the_published_samples_hold_their_optimum() -> None:
    found = robustness(SAMPLES, DEPTH, 8)
    assert (found.split.attention, found.split.activation, found.trials) == (2, 6, 500)
    assert found.same > 0.98
    assert found.same + found.one_off + found.further == pytest.approx(1)
    assert found.mean_attention == pytest.approx(2, abs=0.1)
    assert found == robustness(SAMPLES, DEPTH, 8, NoiseSettings(seed=0))


def test_units_of_equal_worth_do_not_hold() -> None:
    flat = [Sample(i / 4, j / 4, 80.0) for i in range(4) for j in range(4)]
    found = robustness(flat, DEPTH, 8, NoiseSettings(trials=100, seed=3))
    assert found.same < 0.8 and found.further > 0.1 and found.std_attention > 1
    assert found != robustness(flat, DEPTH, 8, NoiseSettings(trials=100, seed=4))


def test_noise_is_that_of_the_images() -> None:
    few, many, unknown = Sample(0.0, 0.0, 90.0, 1.0, 100), Sample(0.0, 0.0, 90.0, 1.0, 40_000), SAMPLES[0]
    found = deviations_of([few, many, unknown])
    assert found == pytest.approx([3.0, 0.15, 0.1], rel=0.05)
    assert deviations_of([few, unknown], 0.7).tolist() == [0.7, 0.7]
    sure = deviations_of([Sample(0.0, 0.0, 100.0, 1.0, 98)])
    assert sure == pytest.approx(100 * (0.99 * 0.01 / 98) ** 0.5)


def test_a_few_images_hold_less_than_many() -> None:
    def report(images: int, deviation: float | None = None) -> Robustness:
        samples = [replace(each, images=images) for each in SAMPLES]
        return robustness(samples, DEPTH, 8, NoiseSettings(trials=30, deviation=deviation))

    assert report(50_000).deviation == pytest.approx(0.18, abs=0.01)
    assert report(0).deviation == pytest.approx(DEVIATION) == 0.1
    few = report(500)
    assert few.deviation == pytest.approx(1.8, abs=0.1) and few.same < 0.6 < report(50_000).same
    assert report(500, 0.1).same == report(0).same


def test_what_is_refused() -> None:
    with pytest.raises(RecipeError, match="trials"):
        NoiseSettings(trials=0)
    with pytest.raises(RecipeError, match="deviation"):
        NoiseSettings(deviation=0.0)
    with pytest.raises(DepthError, match="units"):
        robustness(SAMPLES, DEPTH, 25, NoiseSettings(trials=1))
    with pytest.raises(DepthError, match="samples"):
        robustness(SAMPLES[:3], DEPTH, 8)
