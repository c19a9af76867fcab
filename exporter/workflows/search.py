"""Search for the rho that reaches a measured speed-up: `tune` with one free axis, and a speed as its goal.

Every candidate is lowered and measured. Speed depends on token counts; under a-STAR these depend on the images.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.errors import RecipeError, ScheduleError
from exporter.evaluation.benchmark import compare_speed
from exporter.evaluation.benchmark.timing import Point, RhoSweep
from exporter.models.base import PrunableViT
from exporter.records import ModelSpec, Schedule
from exporter.runtimes.choice import why_not
from exporter.schedule.plan import ScheduleSettings
from exporter.schedule.rates import BISECTIONS, LEAST_RHO, rho_for
from exporter.workflows import steps
from exporter.workflows.measuring import noise
from exporter.workflows.memory import check_batches
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipes.amount import Speedup
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import IMAGE_BISECTIONS, warn_of_anchors
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.networks import Network

__all__ = ["Search", "find_rho", "search", "search_model", "sweep", "way_of"]

# A candidate at most this far above the target, as a share of the speed-up, ends the search.
CLOSE_ENOUGH = 0.02
# A speed-up of more than so many times the ratio of the MACs is refused without a measurement of minutes.
MOST_EFFICIENCY = 3

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Search:
    """The candidates for a speed-up, in the order tried. `schedule` is the one found, None if none reached it."""

    speedup: float
    batch: int
    schedule: Schedule | None
    found: Point | None
    tried: tuple[Point, ...]

    def __repr__(self) -> str:
        found = "nothing found" if self.found is None else f"rho {self.found.rho:.4g}"
        return f"<Search for {self.speedup:g} × at batch {self.batch}: {found}, {len(self.tried)} tried>"


def search(
    recipe: Recipe,
    measurements: int = 6,
    stages: Stages | None = None,
    *,
    model: PrunableViT | nn.Module | None = None,
) -> Search:
    """Search for the recipe's speed-up with its model, calibration and target: see `find_rho`.

    Args:
        recipe: Needs a calibration where its rates or its scores do. Without images, noise is measured; a-STAR
            needs images.
        measurements: Largest number of measurements.
        stages: Shows progress.
        model: A ViT to use instead of the recipe's, an adapter or a module; it is not changed.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    stages, job = stages or Silent(), resolve(recipe)
    if not isinstance(job.amount, Speedup):
        raise RecipeError("search", "no speed-up", "--speedup X")
    wanted = replace(job.amount, measurements=measurements)
    reason = why_not(job.lowering.target)
    if reason:
        raise RecipeError("target", f"{job.lowering.target.name}: {reason}", "one that runs here")
    job.check_calibrated()
    with stages.stage("model"):
        vit = steps.load_model(job.model, job.device, model)
        calibration = steps.read_calibration(job.calibration, vit.spec, vit.weights_sha256)
        vit, calibration = steps.with_outputs(vit, job.outputs, calibration)
        check_batches("--batch", (job.measuring.batch,), vit.spec)
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
    with Bench.of(Network(vit, calibration=calibration), job, images) as bench:
        return find_rho(way_of(job.scoring), bench, wanted, stages)


def way_of(scoring: ScheduleSettings) -> Candidate:
    """Return the candidate that chooses patches as the settings say; how many is left open."""
    return Candidate(
        method=scoring.planned_by,
        scorer=scoring.scored_by,
        reduce=scoring.reduced_by,
        alpha=scoring.alpha,
    )


def sweep(bench: Bench, candidates: Sequence[Candidate]) -> RhoSweep:
    """Measure candidates on the target of the bench's job, in one run with the dense model."""
    target = bench.job.lowering.target
    base, *times = (speed.throughput for speed in bench.speeds((UNPRUNED, *candidates), [target]).values())
    dense, points = bench.macs(UNPRUNED), []
    for candidate, time in zip(candidates, times, strict=True):
        macs = bench.macs(candidate)
        points.append(Point(candidate.rho, macs / 1e9, time, compare_speed(base, time, (dense, macs))))
    return RhoSweep(base.batch, dense / 1e9, base, tuple(points))


def find_rho(way: Candidate, bench: Bench, wanted: Speedup, stages: Stages) -> Search:
    """Find the largest rho tried whose lower quartile of the measured speed-up reaches the target.

    Measurements are expensive and noisy, so few are made. Time is close to linear in MACs: the next candidate is
    where the line through the slowest one that is fast enough and the fastest one that is not meets the target.

    Args:
        way: How patches are chosen.
        bench: Measures each rho together with the dense model.
        wanted: The speed-up and the largest number of measurements. The smallest rho is measured first.
        stages: Shows progress.

    Raises:
        ScheduleError: The speed-up is far above what the MACs of the smallest rho allow.
    """
    speedup = wanted.speedup
    bisections = IMAGE_BISECTIONS if way.method.counts_vary else BISECTIONS

    def at(rho: float) -> Candidate:
        return replace(way, rho=rho)

    def measured(candidate: Candidate) -> Point:
        with stages.stage(f"rho {candidate.rho:.4g}"):
            return sweep(bench, [candidate]).points[0]

    fast, slow = at(LEAST_RHO), at(1.0)
    most = MOST_EFFICIENCY * bench.macs(UNPRUNED) / bench.macs(fast)
    if speedup > most:
        expected = f"at most {most:.3g}: {MOST_EFFICIENCY} times what the MACs of the smallest rho allow"
        raise ScheduleError("--speedup", f"{speedup:g}", expected)
    tried = [measured(fast)]
    batch = tried[0].throughput.batch
    if _share(tried[0]) > 1.0 / speedup:
        return Search(speedup, batch, None, None, tuple(tried))
    found, slow_share, seen = tried[0], 1.0, {_form(bench, fast), _form(bench, slow)}
    while len(tried) < wanted.measurements and found.comparison.quartiles[0] > speedup * (1.0 + CLOSE_ENOUGH):
        aim = 1.0 / (speedup * (1.0 + CLOSE_ENOUGH / 2))
        along = (aim - _share(found)) / (slow_share - _share(found))
        macs = bench.macs(fast) + along * (bench.macs(slow) - bench.macs(fast))
        candidate = rho_for(at, bench.macs, macs, bisections)
        if _form(bench, candidate) in seen:
            break
        seen.add(_form(bench, candidate))
        point = measured(candidate)
        tried.append(point)
        if _share(point) <= 1.0 / speedup:
            fast, found = candidate, point
        else:
            slow, slow_share = candidate, _share(point)
    return Search(speedup, batch, bench.schedule(fast), found, tuple(tried))


def _images(job: Job, spec: ModelSpec) -> Array:
    images, input_kind, batch = job.images, job.lowering.input_kind, job.measuring.batch
    counted = not job.scoring.planned_by.counts_vary
    if counted and images.images is None and images.eval_images is None:
        return noise(spec, input_kind, batch, images.seed)
    return first_images(steps.eval_images(images, spec).files, spec.preprocessing, input_kind, batch)


def _form(bench: Bench, candidate: Candidate) -> tuple[float, ...]:
    """Return what determines the work of a schedule: equal values mean equal work."""
    schedule = bench.schedule(candidate)
    assert schedule is not None
    return schedule.rates if schedule.adaptive else schedule.keep


def _share(point: Point) -> float:
    """Return pruned ÷ dense time, by the lower quartile of the speed-up."""
    return 1.0 / point.comparison.quartiles[0]
