"""The multiply-adds of an image in PyTorch, noise to time models on, and what is slow on this CPU."""

import logging
from collections.abc import Callable

import numpy as np

from exporter.calibration.record import Calibration
from exporter.evaluation.benchmark import VNNI, cpu_lacks
from exporter.evaluation.parity.reference import patches_left_of
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import mean_macs
from exporter.targets import ONNXRUNTIME_INT8, OPENVINO, OPENVINO_INT8, Target
from exporter.tensor_names import Array
from exporter.vocabulary import InputKind

logger = logging.getLogger(__name__)


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
