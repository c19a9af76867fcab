"""Where a measured latency goes back into a schedule: rho for a speed-up, and a sweep over rho.

Speed follows from token counts, and under a-STAR these from the images: every candidate is lowered and measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from exporter.data.batches import first_images
from exporter.errors import RecipeError
from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.evaluation.benchmark.points import Point, RhoSweep
from exporter.records import ModelSpec, Schedule
from exporter.schedule.solve import BISECTIONS, LEAST_RHO, rho_for
from exporter.targets import target_named
from exporter.workflows import steps
from exporter.workflows.measuring import Measure, measure_with, noise, useful_macs
from exporter.workflows.planning import IMAGE_BISECTIONS
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipe import Recipe, needed

__all__ = ["Search", "find_rho", "search"]

# A candidate this little above the target, in share of the speed-up, is taken without another try.
CLOSE_ENOUGH = 0.02

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Search:
    """What was tried for a speed-up, in that order. `schedule` is the one found, None where none reached it."""

    speedup: float
    batch: int
    schedule: Schedule | None
    found: Point | None
    tried: tuple[Point, ...]


def search(recipe: Recipe, speedup: float, measurements: int = 6, stages: Stages | None = None) -> Search:
    """Search with the recipe's model, calibration and target: see `find_rho`.

    Args:
        recipe: Needs a calibration; its images are taken where it names some, else noise. a-STAR needs images.
        speedup: Dense ÷ pruned time to reach at the recipe's batch, above 1.
        measurements: How many at most.
        stages: Shows where the job is.

    Raises:
        UserError: Something in the recipe cannot be done.
    """
    stages = stages or Silent()
    needed(recipe.rounds or None, "--rounds", "at least 5: a speed-up is measured")
    path = needed(recipe.calibration, "--calibration", "what star-export calibrate left")
    layout = target_named(recipe.target).layout(recipe.layout)
    with stages.stage("model"):
        vit = steps.load_model(recipe)
        calibration = steps.fitting_calibration(path, recipe, vit.spec, vit.weights_sha256)
        images = _images(recipe, vit.spec)
    prune = partial(steps.prune, vit, calibration=calibration, layout=layout)
    with stages.stage("lowering, dense"):
        measure = measure_with(steps.dense(vit), prune, images, recipe)

    def plan(rho: float) -> Schedule:
        acs = calibration.acs.tolist()
        return steps.plan(
            replace(recipe, rho=rho, mac_reduction=None), vit.spec, acs, calibration.inter_sha256
        )

    def cost(schedule: Schedule) -> float:
        return useful_macs(prune(schedule), resized(images, recipe.batch), recipe)

    def shown(schedules: Sequence[Schedule]) -> RhoSweep:
        with stages.stage(f"rho {', '.join(f'{schedule.rho:.4g}' for schedule in schedules)}"):
            return measure(schedules)

    bisections = BISECTIONS if recipe.method == "star" else IMAGE_BISECTIONS
    return find_rho(plan, cost, shown, speedup, measurements, bisections=bisections)


def find_rho(
    plan: Callable[[float], Schedule],
    cost: Callable[[Schedule], float],
    measure: Measure,
    speedup: float,
    measurements: int = 6,
    *,
    bisections: int = BISECTIONS,
) -> Search:
    """The schedule of the largest rho tried whose lower quartile of the measured speed-up reaches a target.

    A measurement is dear and noisy, so few are made. Time is close to linear in MACs: the next candidate is where a
    line between the slowest one that is fast enough and the fastest one that is not meets the target.

    Args:
        plan: Makes the schedule of a rho.
        cost: MACs of an image under a schedule; must not fall as rho rises.
        measure: Measures schedules beside the dense model.
        speedup: Dense ÷ pruned time to reach, above 1.
        measurements: How many at most, at least 2. The first one is of the least rho: what is in reach at all.
        bisections: Calls of `cost` for a candidate; see `rho_for`.

    Raises:
        RecipeError: The speed-up or the number of measurements is out of range.
    """
    if not (1.0 < speedup < float("inf") and measurements >= 2):
        raise RecipeError(
            "search", f"speedup={speedup}, measurements={measurements}", "speedup > 1, measurements >= 2"
        )
    fast, slow = plan(LEAST_RHO), plan(1.0)
    sweep = measure([fast])
    tried = [sweep.points[0]]
    if _share(tried[0]) > 1.0 / speedup:
        return Search(speedup, sweep.batch, None, None, tuple(tried))
    found, slow_share, seen = tried[0], 1.0, {_form(fast), _form(slow)}
    while len(tried) < measurements and found.comparison.quartiles[0] > speedup * (1.0 + CLOSE_ENOUGH):
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


def _images(recipe: Recipe, spec: ModelSpec) -> Array:
    if recipe.method == "star" and recipe.images is None and recipe.eval_images is None:
        return noise(spec, recipe.input_kind, recipe.batch, recipe.seed)
    files = steps.eval_images(recipe, spec).files
    return first_images(files, spec.preprocessing, recipe.input_kind, recipe.batch)


def _form(schedule: Schedule) -> tuple[float, ...]:
    """What tells the work of two schedules apart."""
    return schedule.rates if schedule.adaptive else schedule.keep


def _share(point: Point) -> float:
    """Time over the dense model's, by the quartile that promises less."""
    return 1.0 / point.comparison.quartiles[0]
