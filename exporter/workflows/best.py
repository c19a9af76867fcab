"""Find the fastest installed runtime and precision within a loss of accuracy: `tune` with the target alone free."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.data.batches import first_images
from exporter.errors import RecipeError
from exporter.evaluation.benchmark import Hardware, Throughput, environment
from exporter.evaluation.benchmark.timing import Ratio, ratio_of
from exporter.evaluation.intervals import Interval, wilson
from exporter.records import Pair
from exporter.runtimes.choice import why_not
from exporter.targets import ONNXRUNTIME, TARGETS
from exporter.workflows import steps
from exporter.workflows.memory import check_batches
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipes.amount import Speedup
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import Planner, plan
from exporter.workflows.recipes.recipe import Recipe, needed
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.tuning.accuracy import AccuracyMeter
from exporter.workflows.tuning.axes import OWN, UNPRUNED, Candidate
from exporter.workflows.tuning.bench import Bench, Timed
from exporter.workflows.tuning.inputs import require_classes
from exporter.workflows.tuning.networks import Network

__all__ = ["Best", "Choice", "Speed", "choose"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Speed:
    """One target's models. `speedup`: over its own dense model; `total_gain`: over dense fp32 on ONNX Runtime."""

    throughput: Pair[Throughput]
    speedup: Ratio
    total_gain: Ratio


@dataclass(frozen=True)
class Choice:
    """A target: `left_out` says why it was not measured, "" if it was.

    `top1` is that of the pruned model, with its 95 % interval (Wilson). `drop` is the loss in points against the
    pruned fp32 model on ONNX Runtime: the cost of the precision, not of pruning. All three are None if accuracy was
    not requested.
    """

    target: str
    left_out: str
    speed: Speed | None
    top1: float | None
    interval: Interval | None
    drop: float | None


@dataclass(frozen=True)
class Best:
    """All targets, fastest first; `best` is the first whose drop is allowed."""

    model: str
    rho: float | None
    batch: int
    max_drop: float | None
    best: str
    choices: tuple[Choice, ...]
    hardware: Hardware


def choose(recipe: Recipe, max_drop: float | None = None, stages: Stages | None = None) -> Best:
    """Lower the recipe's model for every target that runs here, and measure all of them in one run.

    Args:
        recipe: Needs images, and a calibration where scores or rates follow from one; `target` is ignored.
        max_drop: Largest allowed loss of top-1 in points; None: accuracy is not measured.
        stages: Shows progress.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    stages = stages or Silent()
    if max_drop is not None and not max_drop >= 0:
        raise RecipeError("max_drop", str(max_drop), "points of top-1, 0 or more")
    job = _checked(resolve(recipe))
    input_kind, batch = job.lowering.input_kind, job.measuring.batch
    with stages.stage("model"):
        vit = steps.load_model(job.model, job.device)
        check_batches("--batch", (batch,), vit.spec)
        calibration = steps.read_calibration(job.calibration, vit.spec, vit.weights_sha256)
        if max_drop is not None:
            require_classes(vit.spec)
        schedule = plan(job.needed_amount("best"), Planner.of(vit.spec, job.scoring, calibration, job.shape))
        folder = steps.eval_images(job.images, vit.spec)
        if max_drop is not None and not folder.labelled:
            raise RecipeError("max_drop", "images without classes", "one folder of images per class")
        pixels = first_images(folder.files, vit.spec.preprocessing, input_kind, batch)
    left_out = {name: why_not(target) for name, target in TARGETS.items()}
    targets = [target for name, target in TARGETS.items() if not left_out[name]]
    network = Network(vit, calibration=calibration, given=schedule)
    pruned = network.candidate(OWN)
    assert pruned is not None
    right: dict[str, Array] = {}
    with Bench.of(network, job, pixels) as bench:
        with stages.stage("throughput"):
            speeds = _speeds(bench.speeds((UNPRUNED, pruned), targets), pruned)
        if max_drop is not None:
            meter = AccuracyMeter(bench, folder, "top1")
            with stages.stage("accuracy"):
                right = {each.name: meter.right(pruned.on(each.name)) for each in targets}
    choices = sorted((_choice(name, left_out, speeds, right) for name in TARGETS), key=_order)
    best = next(each.target for each in choices if each.speed and _allowed(each.drop, max_drop))
    hardware = environment(job.measuring.threads)
    return Best(vit.spec.name, schedule.rho, batch, max_drop, best, tuple(choices), hardware)


def _checked(job: Job) -> Job:
    """Return a job of one pruning that every runtime supports."""
    if job.scoring.planned_by.counts_vary:
        raise RecipeError("best", job.scoring.planned_by, "star or tome, which every runtime supports")
    if isinstance(job.needed_amount("best"), Speedup):
        raise RecipeError(
            "best", "a speed-up", "another amount: each runtime would need another rho", "use search"
        )
    needed(job.measuring.rounds or None, "--rounds", "at least 5: speeds are measured")
    job.check_calibrated()
    return job


def _speeds(measured: Mapping[Candidate, Timed], pruned: Candidate) -> dict[str, Speed]:
    """Compare the two models of each target, which include fp32 ONNX Runtime."""
    base = measured[UNPRUNED.on(ONNXRUNTIME.name)].throughput
    speeds = {}
    for name in dict.fromkeys(each.target for each in measured):
        both = Pair(measured[UNPRUNED.on(name)].throughput, measured[pruned.on(name)].throughput)
        speeds[name] = Speed(both, ratio_of(both.dense, both.pruned), ratio_of(base, both.pruned))
    return speeds


def _choice(
    name: str, left_out: Mapping[str, str], speeds: Mapping[str, Speed], right: Mapping[str, Array]
) -> Choice:
    speed = speeds.get(name)
    if name not in right:
        return Choice(name, left_out[name], speed, None, None, None)
    hits, images = int(right[name].sum()), len(right[name])
    drop = 100.0 * (int(right[ONNXRUNTIME.name].sum()) - hits) / images
    return Choice(name, left_out[name], speed, hits / images, wilson(hits, images), drop)


def _allowed(drop: float | None, max_drop: float | None) -> bool:
    """Whether the drop is within the limit; 1e-9 points absorb rounding."""
    return drop is None or max_drop is None or drop <= max_drop + 1e-9


def _order(choice: Choice) -> float:
    """Sort key: time of the pruned model; targets that were not measured come last."""
    return choice.speed.throughput.pruned.median_ms if choice.speed else float("inf")
