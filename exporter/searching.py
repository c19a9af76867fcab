"""Where a measured latency goes back into a schedule: rho for a speed-up, and a sweep over rho.

Speed follows from token counts alone, so every candidate is lowered and measured, and none is checked for what it
answers: that is the compilation's part.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from exporter import api
from exporter.batches import first_images
from exporter.benchmark import compare_speed, throughput
from exporter.benchmark.batch_sweep import resized
from exporter.benchmark.points import Point, RhoSweep
from exporter.benchmark.timing import Clock
from exporter.errors import RecipeError
from exporter.progress import Silent, Stages
from exporter.pruning.pruned_vit import PrunedViT
from exporter.recipe import Recipe, needed
from exporter.records import ModelSpec, Schedule
from exporter.runners.base import Runner
from exporter.runners.choice import on_this_cpu, runner_for
from exporter.schedule.macs import pruned_macs
from exporter.schedule.solve import LEAST_RHO, rho_for
from exporter.targets import target_named
from exporter.tensor_names import IMAGES

__all__ = ["Measure", "Search", "find_rho", "measure_with", "noise", "search"]

WARMUP_ROUNDS = 3
# A candidate this little above the target, in share of the speed-up, is taken without another try.
CLOSE_ENOUGH = 0.02

Array = np.ndarray[Any, Any]
Measure: TypeAlias = Callable[[Sequence[Schedule]], RhoSweep]


@dataclass(frozen=True)
class Search:
    """What was tried for a speed-up, in that order. `schedule` is the one found, None where none reached it."""

    speedup: float
    batch: int
    schedule: Schedule | None
    found: Point | None
    tried: tuple[Point, ...]


def search(recipe: Recipe, speedup: float, steps: int = 6, stages: Stages | None = None) -> Search:
    """Search with the recipe's model, calibration and target: see `find_rho`.

    Args:
        recipe: Needs a calibration; its images are taken where it names some, else noise.
        speedup: Dense ÷ pruned time to reach at the recipe's batch, above 1.
        steps: Measurements at most.
        stages: Shows where the job is.

    Raises:
        UserError: Something in the recipe cannot be done.
    """
    stages = stages or Silent()
    if recipe.method != "star":
        raise RecipeError("search", recipe.method, "star, whose speed follows from its token counts alone")
    needed(recipe.rounds or None, "--rounds", "at least 5: a speed-up is measured")
    path = needed(recipe.calibration, "--calibration", "what star-export calibrate left")
    with stages.stage("model"):
        vit = api.load_model(recipe)
        calibration = api.fitting_calibration(path, recipe, vit.spec, vit.weights_sha256)
        images = _images(recipe, vit.spec)
    with stages.stage("lowering, dense"):
        measure = measure_with(
            api.dense(vit), partial(api.prune, vit, calibration=calibration), images, recipe
        )

    def plan(rho: float) -> Schedule:
        acs = calibration.acs.tolist()
        return api.plan(replace(recipe, rho=rho, mac_reduction=None), vit.spec, acs, calibration.inter_sha256)

    def cost(schedule: Schedule) -> float:
        return pruned_macs(vit.spec, schedule.keep).total

    def shown(schedules: Sequence[Schedule]) -> RhoSweep:
        with stages.stage(f"rho {', '.join(f'{schedule.rho:.4g}' for schedule in schedules)}"):
            return measure(schedules)

    return find_rho(plan, cost, shown, speedup, steps)


def measure_with(
    dense: PrunedViT,
    prune: Callable[[Schedule], PrunedViT],
    images: Array,
    recipe: Recipe,
    clock: Clock = time.perf_counter,
) -> Measure:
    """A function that lowers schedules and measures them, all in one run with the dense model.

    Args:
        dense: Lowered once.
        prune: Makes the PyTorch model of a schedule.
        images: [n, 3, H, W], as the lowered models take them; repeated or cut to the batch.
        recipe: Says for which target, at which batch, on how many threads, for how many rounds.
        clock: Seconds, from any start.
    """
    target = target_named(recipe.target)

    def runner(model: PrunedViT) -> Runner:
        content = api.export(model, recipe).SerializeToString()
        return runner_for(content, target, on_this_cpu(target, recipe.threads), name=model.method)

    dense_runner, feed = runner(dense), {IMAGES: resized(images, recipe.batch)}

    def measure(schedules: Sequence[Schedule]) -> RhoSweep:
        models = [prune(schedule) for schedule in schedules]
        runners = {"dense": dense_runner, **{str(i): runner(model) for i, model in enumerate(models)}}
        rounds, batch = recipe.rounds, recipe.batch
        times = throughput(runners, feed, batch=batch, rounds=rounds, warmup=WARMUP_ROUNDS, clock=clock)
        points = []
        for index, (schedule, model) in enumerate(zip(schedules, models, strict=True)):
            macs = (float(dense.macs.total), float(model.macs.total))
            comparison = compare_speed(times["dense"], times[str(index)], macs)
            points.append(Point(schedule.rho, model.macs.gmacs, times[str(index)], comparison))
        return RhoSweep(batch, dense.macs.gmacs, times["dense"], tuple(points))

    return measure


def find_rho(
    plan: Callable[[float], Schedule],
    cost: Callable[[Schedule], float],
    measure: Measure,
    speedup: float,
    steps: int = 6,
) -> Search:
    """The schedule of the largest rho tried whose lower quartile of the measured speed-up reaches a target.

    A measurement is dear and noisy, so few are made. Time is close to linear in MACs: the next candidate is where a
    line between the slowest one that is fast enough and the fastest one that is not meets the target.

    Args:
        plan: Makes the schedule of a rho.
        cost: MACs of a schedule; must not fall as rho rises.
        measure: Measures schedules beside the dense model.
        speedup: Dense ÷ pruned time to reach, above 1.
        steps: Measurements at most, at least 2. The first one is of the least rho: what is in reach at all.

    Raises:
        RecipeError: The speed-up or the number of steps is out of range.
    """
    if not (1.0 < speedup < float("inf") and steps >= 2):
        raise RecipeError("search", f"speedup={speedup}, steps={steps}", "speedup > 1, steps >= 2")
    fast, slow = plan(LEAST_RHO), plan(1.0)
    sweep = measure([fast])
    tried = [sweep.points[0]]
    if _share(tried[0]) > 1.0 / speedup:
        return Search(speedup, sweep.batch, None, None, tuple(tried))
    found, slow_share, seen = tried[0], 1.0, {fast.keep, slow.keep}
    while len(tried) < steps and found.comparison.quartiles[0] > speedup * (1.0 + CLOSE_ENOUGH):
        aim = 1.0 / (speedup * (1.0 + CLOSE_ENOUGH / 2))
        along = (aim - _share(found)) / (slow_share - _share(found))
        candidate = rho_for(plan, cost, cost(fast) + along * (cost(slow) - cost(fast)))
        if candidate.keep in seen:
            break
        seen.add(candidate.keep)
        point = measure([candidate]).points[0]
        tried.append(point)
        if _share(point) <= 1.0 / speedup:
            fast, found = candidate, point
        else:
            slow, slow_share = candidate, _share(point)
    return Search(speedup, sweep.batch, fast, found, tuple(tried))


def noise(spec: ModelSpec, input_dtype: str, batch: int, seed: int = 0) -> Array:
    """Images of noise, as a lowered model takes them: no node's work depends on what they show."""
    generator, shape = np.random.default_rng(seed), (batch, *spec.preprocessing.input_size)
    if input_dtype == "uint8":
        return generator.integers(0, 256, shape, dtype=np.uint8)
    return generator.standard_normal(shape, dtype=np.float32)


def _images(recipe: Recipe, spec: ModelSpec) -> Array:
    if recipe.images is None and recipe.eval_images is None:
        return noise(spec, recipe.input, recipe.batch, recipe.seed)
    files = api.eval_images(recipe, spec).files
    return first_images(files, spec.preprocessing, recipe.input, recipe.batch)


def _share(point: Point) -> float:
    """Time over the dense model's, by the quartile that promises less."""
    return 1.0 / point.comparison.quartiles[0]
