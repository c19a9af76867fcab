"""Find the schedule of a compilation, and check its prerequisites."""

import logging

from exporter.calibration.record import Calibration
from exporter.errors import RecipeError
from exporter.models.base import PrunableViT
from exporter.records import Schedule
from exporter.schedule.methods import SEARCH
from exporter.workflows.progress import Stages
from exporter.workflows.recipes.amount import Amount, Given, MacShare, Rates
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import Planner, measured_macs, plan, searched
from exporter.workflows.recipes.recipe import needed

__all__ = ["checked_amount", "schedule_of"]

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
    if job.scoring.counted_by == SEARCH and job.shape is None:
        needed(images.images, "--images", "a folder of images, to search counts on")
    if isinstance(amount, Given) and amount.schedule.inter_sha256:
        needed(calibrated or None, "--calibration", "the calibration that the schedule was made with")
    return amount


def _check_noise(job: Job) -> None:
    """Warn that noise is measured on; RecipeError where a setting asks for what only images can tell."""
    if job.images.class_map is not None:
        raise RecipeError("--class-map", "no images", "--images beside it, whose accuracy it asks for")
    logger.warning(
        "no images: agreement with PyTorch and speed are measured on noise, not on photos; accuracy is not "
        "measured, and no picture is drawn (--images DIR)"
    )


def schedule_of(
    vit: PrunableViT,
    calibration: Calibration | None,
    *,
    amount: Amount,
    job: Job,
    stages: Stages,
) -> Schedule:
    """Return the schedule of an amount; a MAC share of a-STAR is solved on images.

    Raises:
        ScheduleError: The amount is out of reach.
    """
    planner = Planner.of(vit.spec, job.scoring, calibration, job.shape)
    if planner.scoring.counted_by == SEARCH and job.shape is None and not isinstance(amount, Given | Rates):
        with stages.stage("counts, on calibration images"):
            return searched(amount, vit, job.scoring, job.images, calibration)
    if isinstance(amount, MacShare) and job.scoring.planned_by.counts_vary:
        with stages.stage("rho, on calibration images"):
            macs = measured_macs(vit, job.images, calibration, job.measuring.batch)
            return plan(amount, planner, image_macs=macs)
    return plan(amount, planner)
