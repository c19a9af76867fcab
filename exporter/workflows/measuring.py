"""Lower models into memory, and time all of them interleaved in one run.

Outputs are not compared here; `exporter.workflows.proof` does that.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from exporter.calibration.record import Calibration
from exporter.evaluation.benchmark import VNNI, Throughput, cpu_lacks, throughput
from exporter.evaluation.benchmark.batch_sweep import filled_batch
from exporter.evaluation.benchmark.timing import Clock
from exporter.evaluation.parity.reference import patches_left_of
from exporter.lowering.pipeline import lower_each
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.schedule.macs import mean_macs
from exporter.targets import ONNXRUNTIME_INT8, OPENVINO, OPENVINO_INT8, Target
from exporter.tensor_names import IMAGES
from exporter.vocabulary import InputKind
from exporter.workflows.recipe import Measuring

__all__ = ["Lowered", "image_cost", "lowered", "mean_useful_macs", "noise", "timed", "warn_where_slow"]

Array = np.ndarray[Any, Any]
KeyT = TypeVar("KeyT")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lowered:
    """A lowered model, in memory or in a file."""

    content: bytes | Path
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
    feed = {IMAGES: filled_batch(images, measuring.batch)}
    times = throughput(runners, feed, batch=measuring.batch, rounds=measuring.rounds, clock=clock)
    return {key: times[place] for place, key in keys.items()}


def mean_useful_macs(model: PrunedViT, images: Array, input_kind: InputKind) -> float:
    """Return the MACs of one image: from the schedule, or under a-STAR the mean over these images."""
    if model.method != "a-star":
        return float(model.macs.total)
    left = patches_left_of(model, images, input_kind, len(images))
    return float(mean_macs(model.vit.spec, left, model.schedule).total)


def image_cost(
    vit: PrunableViT, images: Array, calibration: Calibration | None, batch: int
) -> Callable[[Schedule], float]:
    """Return a function: mean useful MACs of these images, [n, 3, H, W] float32, under an a-STAR schedule."""
    inter = None if calibration is None else calibration.inter

    def cost(schedule: Schedule) -> float:
        pruned = PrunedViT(vit, schedule, inter)
        left = patches_left_of(pruned, images, InputKind.FLOAT32, batch)
        return float(mean_macs(vit.spec, left, schedule).total)

    return cost


def noise(spec: ModelSpec, input_kind: str, batch: int, seed: int = 0) -> Array:
    """Return noise images as a lowered model takes them; the time of a static model does not depend on content."""
    generator, shape = np.random.default_rng(seed), (batch, *spec.preprocessing.input_size)
    if input_kind == "uint8":
        return generator.integers(0, 256, shape, dtype=np.uint8)
    return generator.standard_normal(shape, dtype=np.float32)


def warn_where_slow(*targets: Target) -> None:
    """Log one line if INT8 for OpenVINO is among the targets, and this CPU makes it slower than fp32.

    With AVX-512 it is faster, also without VNNI.
    """
    if OPENVINO_INT8 in targets and cpu_lacks("avx512f", *VNNI):
        logger.warning(
            "this CPU has no VNNI and no AVX-512: %s is slower than %s here; %s is faster",
            *(each.name for each in (OPENVINO_INT8, OPENVINO, ONNXRUNTIME_INT8)),
        )
