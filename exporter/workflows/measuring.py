"""Measure the speed of schedules and of the dense model: lower each, and time all of them interleaved in one run.

Outputs are not compared here; `exporter.workflows.proof` does that.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from exporter.evaluation.benchmark import compare_speed, throughput
from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.evaluation.benchmark.points import Point, RhoSweep
from exporter.evaluation.benchmark.timing import Clock
from exporter.evaluation.parity.reference import patches_left_of
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.schedule.macs import mean_macs
from exporter.tensor_names import IMAGES
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.requests import Lowering, Measuring

__all__ = ["Measure", "measure_with", "noise", "useful_macs"]

Array = np.ndarray[Any, Any]
Measure: TypeAlias = Callable[[Sequence[Schedule]], RhoSweep]


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
    target = lowering.target

    def runner(model: PrunedViT) -> Runner:
        content = steps.export(model, lowering, ranges).SerializeToString()
        return runner_for(content, target, on_this_cpu(target, measuring.threads), name=model.method)

    batch = resized(images, measuring.batch)
    dense_runner, feed = runner(dense), {IMAGES: batch}

    def measure(schedules: Sequence[Schedule]) -> RhoSweep:
        models = [prune(schedule) for schedule in schedules]
        runners = {"dense": dense_runner, **{str(i): runner(model) for i, model in enumerate(models)}}
        rounds, size = measuring.rounds, measuring.batch
        times = throughput(runners, feed, batch=size, rounds=rounds, clock=clock)
        points = []
        for index, model in enumerate(models):
            macs = useful_macs(model, batch, lowering.input_kind)
            comparison = compare_speed(times["dense"], times[str(index)], (float(dense.macs.total), macs))
            points.append(Point(model.schedule.rho, macs / 1e9, times[str(index)], comparison))
        return RhoSweep(size, dense.macs.gmacs, times["dense"], tuple(points))

    return measure


def useful_macs(model: PrunedViT, images: Array, input_kind: InputKind) -> float:
    """Return the MACs of one image: from the schedule, or under a-STAR the mean over these images."""
    if model.method != "a-star":
        return float(model.macs.total)
    left = patches_left_of(model, images, input_kind, len(images))
    return float(mean_macs(model.vit.spec, left).total)


def noise(spec: ModelSpec, input_kind: str, batch: int, seed: int = 0) -> Array:
    """Return noise images as a lowered model takes them; the time of a static model does not depend on content."""
    generator, shape = np.random.default_rng(seed), (batch, *spec.preprocessing.input_size)
    if input_kind == "uint8":
        return generator.integers(0, 256, shape, dtype=np.uint8)
    return generator.standard_normal(shape, dtype=np.float32)
