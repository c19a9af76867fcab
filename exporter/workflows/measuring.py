"""Lower models into memory, and time all of them interleaved in one run.

Outputs are not compared here; `exporter.workflows.proof` does that.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from exporter.evaluation.benchmark import Throughput, compare_speed, throughput
from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.evaluation.benchmark.points import Point, RhoSweep
from exporter.evaluation.benchmark.timing import Clock
from exporter.evaluation.parity.reference import patches_left_of
from exporter.lowering.pipeline import lower_each
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.schedule.macs import mean_macs
from exporter.targets import Target
from exporter.tensor_names import IMAGES
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.requests import Lowering, Measuring

__all__ = ["Lowered", "Measure", "lowered", "measure_with", "noise", "timed", "useful_macs"]

Array = np.ndarray[Any, Any]
KeyT = TypeVar("KeyT")
Measure: TypeAlias = Callable[[Sequence[Schedule]], RhoSweep]


@dataclass(frozen=True)
class Lowered:
    """A lowered model in memory."""

    content: bytes
    target: Target

    def runner(self, threads: int, name: str = "") -> Runner:
        """Return its runner on this machine's CPU."""
        settings = on_this_cpu(self.target, threads)
        return runner_for(self.content, self.target, settings, name=name or self.target.name)


def lowered(
    pruned: PrunedViT, targets: Sequence[Target], input_kind: InputKind, ranges: Array | None = None
) -> list[Lowered]:
    """Lower a model for each target; `ranges` are the images for INT8 activation ranges."""
    models = lower_each(pruned, targets, input_kind, ranges)
    return [Lowered(model.SerializeToString(), target) for model, target in zip(models, targets, strict=True)]


def timed(
    models: Mapping[KeyT, Lowered], images: Array, measuring: Measuring, clock: Clock = time.perf_counter
) -> dict[KeyT, Throughput]:
    """Time all models, each on its own runtime, interleaved in one run.

    Args:
        models: By any key; the result has the same keys.
        images: [n, 3, H, W], as the models take them; repeated or cut to the batch.
        measuring: Batch, threads and rounds.
        clock: Returns seconds, from any start.
    """
    keys = {str(place): key for place, key in enumerate(models)}
    runners = {place: models[key].runner(measuring.threads) for place, key in keys.items()}
    feed = {IMAGES: resized(images, measuring.batch)}
    times = throughput(runners, feed, batch=measuring.batch, rounds=measuring.rounds, clock=clock)
    return {key: times[place] for place, key in keys.items()}


def measure_with(
    dense: PrunedViT,
    prune: Callable[[Schedule], PrunedViT],
    images: Array,
    lowering: Lowering,
    measuring: Measuring,
    *,
    ranges: Array | None = None,
    clock: Clock = time.perf_counter,
) -> Measure:
    """Return a function that lowers schedules and measures them in one run with the dense model.

    Args:
        dense: The dense model; it is lowered once.
        prune: Makes the PyTorch model of a schedule.
        images: [n, 3, H, W], as the lowered models take them; repeated or cut to the batch. a-STAR needs real
            images, which decide how many patches it keeps.
        lowering: Target, layout and input.
        measuring: Batch, threads and rounds.
        ranges: Images for the INT8 activation ranges.
        clock: Returns seconds, from any start.
    """

    def on_target(model: PrunedViT) -> Lowered:
        return Lowered(steps.export(model, lowering, ranges).SerializeToString(), lowering.target)

    unpruned, batch = on_target(dense), resized(images, measuring.batch)

    def measure(schedules: Sequence[Schedule]) -> RhoSweep:
        models = [prune(schedule) for schedule in schedules]
        every = dict(enumerate([unpruned, *map(on_target, models)]))
        base, *times = timed(every, batch, measuring, clock).values()
        points = []
        for model, time_ in zip(models, times, strict=True):
            macs = useful_macs(model, batch, lowering.input_kind)
            comparison = compare_speed(base, time_, (float(dense.macs.total), macs))
            points.append(Point(model.schedule.rho, macs / 1e9, time_, comparison))
        return RhoSweep(measuring.batch, dense.macs.gmacs, base, tuple(points))

    return measure


def useful_macs(model: PrunedViT, images: Array, input_kind: InputKind) -> float:
    """Return the MACs of one image: from the schedule, or under a-STAR the mean over these images."""
    if model.method != "a-star":
        return float(model.macs.total)
    left = patches_left_of(model, images, input_kind, len(images))
    return float(mean_macs(model.vit.spec, left, model.schedule).total)


def noise(spec: ModelSpec, input_kind: str, batch: int, seed: int = 0) -> Array:
    """Return noise images as a lowered model takes them; the time of a static model does not depend on content."""
    generator, shape = np.random.default_rng(seed), (batch, *spec.preprocessing.input_size)
    if input_kind == "uint8":
        return generator.integers(0, 256, shape, dtype=np.uint8)
    return generator.standard_normal(shape, dtype=np.float32)
