"""The guess of a time: of what it is made, and in which direction it moves."""

from dataclasses import replace

import pytest

from exporter.models.registry import describe
from exporter.schedule.macs import dense_macs
from exporter.workflows.previewing.work import Work, calibration_work, guessed_s, search_work, speed_here
from exporter.workflows.recipes.amount import Speedup
from exporter.workflows.recipes.resolve import resolve
from tests.commands import Workplace


def test_the_guess_grows_with_the_work_and_shrinks_with_the_speed() -> None:
    assert speed_here() > 1e6
    little, much = [Work("parity", 1, 1e9)], [Work("parity", 1, 1e9), Work("lowering", 0, 0.0, lowered=2)]
    assert guessed_s(little, 1e9) < guessed_s(much, 1e9)
    assert guessed_s(much, 1e12) < guessed_s(much, 1e9)
    low, high = guessed_s(little, 1e9)
    assert low < high


def test_a_calibration_runs_each_image_once_and_relevance_adds_passes(workplace: Workplace) -> None:
    job, spec = resolve(workplace.recipe(max_images=5)), describe(workplace.request).spec
    plain, scored = (calibration_work(job, spec, relevance=each) for each in (False, True))
    assert (plain.images, plain.macs) == (5, 5 * dense_macs(spec).total)
    assert scored.macs > 2 * plain.macs
    auto = replace(
        job,
        calibration=replace(job.calibration, settings=replace(job.calibration.settings, max_images="auto")),
    )
    assert calibration_work(auto, spec).images == 12


def test_a_search_lowers_the_unpruned_model_and_one_more_for_each_measurement(workplace: Workplace) -> None:
    found = search_work(resolve(workplace.recipe(batch=2, rounds=5)), Speedup(1.5, measurements=3), 10.0)
    assert found.lowered == 4
    assert found.images % (3 * 2) == 0
    assert found.macs == pytest.approx(10 * found.images)
