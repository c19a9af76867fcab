"""Schedules lowered and timed in turns with the dense model."""

import itertools

import numpy as np
import pytest

from exporter.models.base import PrunableViT
from exporter.schedule.macs import mean_macs
from exporter.schedule.plan import ScheduleSettings, star_schedule
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.measuring import measure_with, noise
from exporter.workflows.requests import Lowering, Measuring
from tests.pruning.adaptive import varied_images


@pytest.mark.ort
def test_candidates_are_lowered_and_run_in_turns(tiny_vit: PrunableViT) -> None:
    acs, settings = [0.1, 0.5, 0.3, 0.9], ScheduleSettings("intra", reduce="drop")
    ticks = itertools.count(0.0, 0.5)
    measuring = Measuring(batch=2, rounds=5, threads=1)
    images = noise(tiny_vit.spec, "float32", 3)
    measure = measure_with(
        steps.dense(tiny_vit),
        lambda schedule: steps.prune(tiny_vit, schedule),
        images,
        Lowering(),
        measuring,
        clock=ticks.__next__,
    )
    schedules = [star_schedule(tiny_vit.spec, acs, rho, settings) for rho in (0.8, 0.5)]
    sweep = measure(schedules)
    assert [point.rho for point in sweep.points] == [0.8, 0.5]
    assert sweep.dense_gmacs > sweep.points[0].gmacs > sweep.points[1].gmacs
    for point in sweep.points:
        assert point.throughput.rounds_ms == (500.0,) * 5
        assert (point.comparison.speedup, point.comparison.outcome) == (1.0, "undecided")


@pytest.mark.ort
def test_what_a_star_keeps_of_the_images_is_its_multiply_adds(tiny_vit: PrunableViT) -> None:
    acs, settings = [0.1, 0.5, 0.3, 0.9], ScheduleSettings("intra", method=Method.A_STAR)
    schedule = star_schedule(tiny_vit.spec, acs, 0.8, settings)
    measuring = Measuring(batch=4, rounds=5, threads=1)
    pruned, images = steps.prune(tiny_vit, schedule), varied_images(tiny_vit, 4)
    measure = measure_with(
        steps.dense(tiny_vit),
        lambda schedule: steps.prune(tiny_vit, schedule),
        images.numpy(),
        Lowering(),
        measuring,
    )
    (point,) = measure([schedule]).points
    assert point.gmacs == mean_macs(tiny_vit.spec, pruned.patches_left(images).numpy()).gmacs
    assert point.gmacs < pruned.macs.gmacs


def test_noise_is_what_the_model_takes(tiny_vit: PrunableViT) -> None:
    assert noise(tiny_vit.spec, "uint8", 2).dtype == np.uint8
    images = noise(tiny_vit.spec, "float32", 2, seed=3)
    assert (images.dtype, images.shape) == (np.float32, (2, 3, 32, 32))
    np.testing.assert_array_equal(images, noise(tiny_vit.spec, "float32", 2, seed=3))
