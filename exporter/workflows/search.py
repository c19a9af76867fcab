"""Search for the rho that reaches a measured speed-up: every candidate is lowered and measured.

Speed depends on token counts; under a-STAR these depend on the images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.errors import RecipeError
from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.evaluation.benchmark.points import Point, RhoSweep
from exporter.models.base import PrunableViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.solve import BISECTIONS, LEAST_RHO, rho_for
from exporter.workflows import steps
from exporter.workflows.amount import Speedup
from exporter.workflows.measuring import Measure, measure_with, noise, useful_macs
from exporter.workflows.planning import IMAGE_BISECTIONS, Planner, warn_of_anchors
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipe import Recipe
from exporter.workflows.resolve import Job, resolve

__all__ = ["Search", "find_rho", "search", "search_model"]

# A candidate at most this far above the target, as a share of the speed-up, ends the search.
CLOSE_ENOUGH = 0.02

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Search:
    """The candidates for a speed-up, in the order tried. `schedule` is the one found, None if none reached it."""

    speedup: float
    batch: int
    schedule: Schedule | None
    found: Point | None
    tried: tuple[Point, ...]


def search(recipe: Recipe, measurements: int = 6, stages: Stages | None = None) -> Search:
    """Search for the recipe's speed-up with its model, calibration and target: see `find_rho`.

    Args:
        recipe: Needs a calibration where its rates or its scores do. Without images, noise is measured; a-STAR
            needs images.
        measurements: Largest number of measurements.
        stages: Shows progress.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    stages, job = stages or Silent(), resolve(recipe)
    if not isinstance(job.amount, Speedup):
        raise RecipeError("search", "no speed-up", "--speedup X")
    wanted = replace(job.amount, measurements=measurements)
    job.check_calibrated()
    with stages.stage("model"):
        vit = steps.load_model(job.model, job.device)
        calibration = steps.read_calibration(job.calibration, vit.spec, vit.weights_sha256)
        vit, calibration = steps.with_outputs(vit, job.outputs, calibration)
        images = _images(job, vit.spec)
    found = search_model(wanted, vit, job, calibration, images=images, stages=stages)
    if found.schedule is not None:
        warn_of_anchors(found.schedule)
    return found


def search_model(
    wanted: Speedup,
    vit: PrunableViT,
    job: Job,
    calibration: Calibration | None,
    *,
    images: Array,
    stages: Stages,
) -> Search:
    """Search with a loaded model and calibration; `images` are as the lowered models take them."""
    measuring, lowering = job.measuring, job.lowering
    planner = Planner.of(vit.spec, job.scoring, calibration, job.shape)
    prune = partial(steps.prune, vit, calibration=calibration, layout=lowering.layout)
    with stages.stage("lowering, dense"):
        ranges = steps.range_images(job.images, vit.spec, lowering.input_kind, lowering.target)
        measure = measure_with(steps.dense(vit), prune, images, lowering, measuring, ranges=ranges)

    def cost(schedule: Schedule) -> float:
        return useful_macs(prune(schedule), resized(images, measuring.batch), lowering.input_kind)

    def shown(schedules: Sequence[Schedule]) -> RhoSweep:
        with stages.stage(f"rho {', '.join(f'{schedule.rho:.4g}' for schedule in schedules)}"):
            return measure(schedules)

    bisections = IMAGE_BISECTIONS if job.scoring.planned_by.counts_vary else BISECTIONS
    return find_rho(planner.of_rho, cost, shown, wanted, bisections=bisections)


def find_rho(
    plan: Callable[[float], Schedule],
    cost: Callable[[Schedule], float],
    measure: Measure,
    wanted: Speedup,
    *,
    bisections: int = BISECTIONS,
) -> Search:
    """Find the largest rho tried whose lower quartile of the measured speed-up reaches the target.

    Measurements are expensive and noisy, so few are made. Time is close to linear in MACs: the next candidate is
    where the line through the slowest one that is fast enough and the fastest one that is not meets the target.

    Args:
        plan: Makes the schedule of a rho.
        cost: MACs of an image under a schedule.
        measure: Measures schedules together with the dense model.
        wanted: The speed-up and the largest number of measurements. The smallest rho is measured first.
        bisections: Calls of `cost` per candidate; see `rho_for`.
    """
    speedup = wanted.speedup
    fast, slow = plan(LEAST_RHO), plan(1.0)
    sweep = measure([fast])
    tried = [sweep.points[0]]
    if _share(tried[0]) > 1.0 / speedup:
        return Search(speedup, sweep.batch, None, None, tuple(tried))
    found, slow_share, seen = tried[0], 1.0, {_form(fast), _form(slow)}
    while len(tried) < wanted.measurements and found.comparison.quartiles[0] > speedup * (1.0 + CLOSE_ENOUGH):
        aim = 1.0 / (speedup * (1.0 + CLOSE_ENOUGH / 2))
        along = (aim - _share(found)) / (slow_share - _share(found))
        candidate = rho_for(plan, cost, cost(fast) + along * (cost(slow) - cost(fast)), bisections)
        if _form(candidate) in seen:
            break
        seen.add(_form(candidate))
        point = measure([candidate]).points[0]
        tried.append(point)
        if _share(point) <= 1.0 / speedup:
            fast, found = candidate, point
        else:
            slow, slow_share = candidate, _share(point)
    return Search(speedup, sweep.batch, fast, found, tuple(tried))


def _images(job: Job, spec: ModelSpec) -> Array:
    images, input_kind, batch = job.images, job.lowering.input_kind, job.measuring.batch
    counted = not job.scoring.planned_by.counts_vary
    if counted and images.images is None and images.eval_images is None:
        return noise(spec, input_kind, batch, images.seed)
    return first_images(steps.eval_images(images, spec).files, spec.preprocessing, input_kind, batch)


def _form(schedule: Schedule) -> tuple[float, ...]:
    """Return what determines the work of a schedule: equal values mean equal work."""
    return schedule.rates if schedule.adaptive else schedule.keep


def _share(point: Point) -> float:
    """Return pruned ÷ dense time, by the lower quartile of the speed-up."""
    return 1.0 / point.comparison.quartiles[0]
