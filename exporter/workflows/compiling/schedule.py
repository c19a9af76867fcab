"""Find the schedule of a compilation, check its prerequisites, and measure the sweep over rho."""

import logging
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from exporter.calibration.record import Calibration
from exporter.data.images import ImageFolder
from exporter.errors import RecipeError, ScheduleError
from exporter.evaluation.benchmark.timing import RhoSweep, TradeOff
from exporter.models.base import PrunableViT
from exporter.records import Schedule
from exporter.workflows.progress import Stages
from exporter.workflows.recipes.amount import Amount, Given, MacShare, Speedup
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import Planner, measured_macs, plan
from exporter.workflows.recipes.recipe import needed
from exporter.workflows.search import search_model, sweep, way_of
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.networks import Network
from exporter.workflows.tuning.trade_off import trade_off_of_sweep

__all__ = ["checked_amount", "measured_sweep", "schedule_of"]

Array = np.ndarray[Any, Any]

logger = logging.getLogger(__name__)


def checked_amount(job: Job) -> Amount:
    """Return how much to prune, after checking that everything the compilation needs is given.

    Raises:
        RecipeError: The amount is missing, or images or a calibration that are needed.
    """
    amount = job.needed_amount("compile")
    folder, images, calibrated = "a folder of images", job.images, job.calibration.exists
    if job.on_noise:
        _check_noise(job)
    else:
        needed(images.eval_images or images.images, "--images", folder)
    job.check_ranges()
    if job.reads_calibration and not calibrated:
        needed(images.images, "--images", folder)
    if isinstance(amount, MacShare) and job.scoring.planned_by.counts_vary:
        needed(images.images, "--images", "a folder of images: the MACs of a-star depend on them")
    if isinstance(amount, Given) and amount.schedule.inter_sha256:
        needed(calibrated or None, "--calibration", "the calibration that the schedule was made with")
    if job.sweep:
        # Import the chart now, so that a missing library is reported before hours of work.
        import_module("exporter.evaluation.report.chart")
    return amount


def _check_noise(job: Job) -> None:
    """Warn that noise is measured on; RecipeError where a setting asks for what only images can tell."""
    for flag, asked in (("--class-map", job.images.class_map), ("--sweep", job.sweep or None)):
        if asked is not None:
            raise RecipeError(flag, "no images", "--images beside it, whose accuracy it asks for")
    logger.warning(
        "no images: agreement with PyTorch and speed are measured on noise, not on photos; accuracy is not "
        "measured, and no picture is drawn (--images DIR)"
    )


def schedule_of(
    vit: PrunableViT,
    calibration: Calibration | None,
    *,
    amount: Amount,
    images: Array,
    job: Job,
    stages: Stages,
) -> Schedule:
    """Return the schedule of an amount; a MAC share of a-STAR is solved on images, a speed-up by measurements.

    Raises:
        ScheduleError: The amount is out of reach.
    """
    planner = Planner.of(vit.spec, job.scoring, calibration, job.shape)

    def searched(wanted: Speedup) -> Schedule:
        found = search_model(wanted, vit, job, calibration, images=images, stages=stages)
        if found.schedule is None:
            least = found.tried[0].comparison.quartiles[0]
            raise ScheduleError(
                "speedup", f"{wanted.speedup:g}", f"at most {least:.2f}, which the smallest rho gives"
            )
        return found.schedule

    if isinstance(amount, MacShare) and job.scoring.planned_by.counts_vary:
        with stages.stage("rho, on calibration images"):
            macs = measured_macs(vit, job.images, calibration, job.measuring.batch)
            return plan(amount, planner, image_macs=macs)
    return plan(amount, planner, search=searched)


def measured_sweep(
    vit: PrunableViT,
    calibration: Calibration | None,
    *,
    images: Array,
    folder: ImageFolder,
    job: Job,
    stages: Stages,
) -> tuple[RhoSweep, TradeOff | None]:
    """Measure the schedules of several rho together with the dense model, and what each loses on the folder."""
    network = Network(vit, calibration=calibration)
    with (
        stages.stage(f"sweep over rho {', '.join(map(str, job.sweep))}"),
        Bench.of(network, job, images) as bench,
    ):
        candidates = [replace(way_of(job.scoring), rho=rho) for rho in job.sweep]
        measured = sweep(bench, candidates)
        return measured, trade_off_of_sweep(bench, candidates, measured, folder)
