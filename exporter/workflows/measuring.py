"""The multiply-adds of an image in PyTorch, and noise to time models on."""

from collections.abc import Callable
from typing import Any

import numpy as np

from exporter.calibration.record import Calibration
from exporter.evaluation.parity.reference import patches_left_of
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import mean_macs
from exporter.vocabulary import InputKind

__all__ = ["image_cost", "mean_useful_macs", "noise"]

Array = np.ndarray[Any, Any]


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
