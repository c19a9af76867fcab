"""Find the fastest installed runtime and precision for a model, within a limit on the loss of accuracy."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.data.batches import batches, first_images
from exporter.data.images import ImageFolder
from exporter.errors import RecipeError
from exporter.evaluation.accuracy import Accuracy, evaluate
from exporter.evaluation.benchmark import Hardware, Throughput, environment
from exporter.evaluation.benchmark.timing import Clock, Ratio, ratio_of
from exporter.evaluation.proportions import Interval
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.runtimes.choice import why_not
from exporter.targets import ONNXRUNTIME, TARGETS, Target
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.amount import Speedup
from exporter.workflows.measuring import Lowered, lowered, timed
from exporter.workflows.planning import Planner, plan
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipe import Recipe, needed
from exporter.workflows.requests import Measuring
from exporter.workflows.resolve import resolve

__all__ = ["Best", "Choice", "Speed", "choose", "lower_all", "measure_all"]


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
    job = resolve(recipe)
    if job.scoring.planned_by.counts_vary:
        raise RecipeError("best", job.scoring.planned_by, "star or tome, which every runtime supports")
    amount = job.needed_amount("best")
    if isinstance(amount, Speedup):
        raise RecipeError(
            "best", "a speed-up", "another amount: each runtime would need another rho", "use search"
        )
    needed(job.measuring.rounds or None, "--rounds", "at least 5: speeds are measured")
    job.check_calibrated()
    measuring, input_kind = job.measuring, job.lowering.input_kind
    with stages.stage("model"):
        vit = steps.load_model(job.model, job.device)
        calibration = steps.read_calibration(job.calibration, vit.spec, vit.weights_sha256)
        schedule = plan(amount, Planner.of(vit.spec, job.scoring, calibration, job.shape))
        pair = Pair(steps.dense(vit), steps.prune(vit, schedule, calibration))
        folder = steps.eval_images(job.images, vit.spec)
        if max_drop is not None and not folder.labelled:
            raise RecipeError("max_drop", "images without classes", "one folder of images per class")
    left_out = {name: why_not(target) for name, target in TARGETS.items()}
    targets = [target for name, target in TARGETS.items() if not left_out[name]]
    with stages.stage("lowering"):
        ranges = steps.range_images(job.images, vit.spec, input_kind, *targets)
        models = lower_all(pair, targets, input_kind, ranges)
    with stages.stage("throughput"):
        images = first_images(folder.files, vit.spec.preprocessing, input_kind, measuring.batch)
        speeds = measure_all(models, images, measuring)
    accuracies: dict[str, Accuracy] = {}
    if max_drop is not None:
        with stages.stage("accuracy"):
            accuracies = _accuracies(models, folder, pair.pruned, input_kind, measuring)
    choices = sorted((_choice(name, left_out, speeds, accuracies) for name in TARGETS), key=_order)
    best = next(each.target for each in choices if each.speed and _allowed(each.drop, max_drop))
    hardware = environment(measuring.threads)
    return Best(vit.spec.name, schedule.rho, measuring.batch, max_drop, best, tuple(choices), hardware)


def lower_all(
    pair: Pair[PrunedViT], targets: Sequence[Target], input_kind: InputKind, ranges: Array | None
) -> dict[str, Pair[Lowered]]:
    """Lower both models for each target; `ranges` are the images for INT8 activation ranges."""
    both = (lowered(each, targets, input_kind, ranges) for each in (pair.dense, pair.pruned))
    return {models[0].target.name: Pair(*models) for models in zip(*both, strict=True)}


def measure_all(
    models: Mapping[str, Pair[Lowered]], images: Array, measuring: Measuring, clock: Clock = time.perf_counter
) -> dict[str, Speed]:
    """Measure all models of all targets, which include fp32 ONNX Runtime, interleaved in one run."""
    every = {(name, role): each for name, pair in models.items() for role, each in vars(pair).items()}
    times = timed(every, images, measuring, clock)
    base = times[ONNXRUNTIME.name, "dense"]
    speeds = {}
    for name in models:
        both = Pair(times[name, "dense"], times[name, "pruned"])
        speeds[name] = Speed(both, ratio_of(both.dense, both.pruned), ratio_of(base, both.pruned))
    return speeds


def _accuracies(
    models: Mapping[str, Pair[Lowered]],
    folder: ImageFolder,
    pruned: PrunedViT,
    input_kind: InputKind,
    measuring: Measuring,
) -> dict[str, Accuracy]:
    preprocessing = pruned.vit.spec.preprocessing
    found = {}
    for name, pair in models.items():
        groups = batches(folder.files, preprocessing, input_kind, measuring.batch)
        found[name] = evaluate(pair.pruned.runner(measuring.threads), groups)
    return found


def _choice(
    name: str,
    left_out: Mapping[str, str],
    speeds: Mapping[str, Speed],
    accuracies: Mapping[str, Accuracy],
) -> Choice:
    speed, found = speeds.get(name), accuracies.get(name)
    if found is None:
        return Choice(name, left_out[name], speed, None, None, None)
    drop = 100.0 * (accuracies[ONNXRUNTIME.name].top1 - found.top1)
    return Choice(name, left_out[name], speed, found.top1, found.interval, drop)


def _allowed(drop: float | None, max_drop: float | None) -> bool:
    """Whether the drop is within the limit; 1e-9 points absorb rounding."""
    return drop is None or max_drop is None or drop <= max_drop + 1e-9


def _order(choice: Choice) -> float:
    """Sort key: time of the pruned model; targets that were not measured come last."""
    return choice.speed.throughput.pruned.median_ms if choice.speed else float("inf")
