"""Guess how long steps take from their multiply-adds and the speed of one matrix product on this machine.

It is a guess, not a measurement: models reach between the whole speed of a large product and a sixth of it,
depending on their widths, the runtime and what else runs on the machine.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch

from exporter.data.images import sample
from exporter.data.source import images_at
from exporter.evaluation.benchmark.timing import WARMUP_ROUNDS
from exporter.records import ModelSpec
from exporter.schedule.macs import dense_macs
from exporter.workflows.recipes.amount import Speedup
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import needed

__all__ = ["Work", "calibration_work", "guessed_s", "search_work", "speed_here"]

# Seconds to load libraries and a model, and to lower one model: the least and the most that were met.
START_S = (3.0, 15.0)
LOWERING_S = (4.0, 30.0)
# Seconds to decode an image and to bring it to the input size.
IMAGE_S = (0.001, 0.02)
# With max_images "auto": the most images that a calibration reads.
AUTO = 2048
RELEVANCE_PASSES = 3.7
# The share of a large product's speed that a model reaches.
REACHED = (1.0, 1 / 6)

# A product of the shapes of a ViT's MLP: [rows, inner] × [inner, columns].
ROWS, INNER, COLUMNS = 1576, 384, 1536
SPENT_S = 0.2


@dataclass(frozen=True)
class Work:
    """A step: the images that it runs on, its multiply-adds in all, and how many models it lowers."""

    step: str
    images: int
    macs: float
    lowered: int = 0


def calibration_work(job: Job, spec: ModelSpec, *, relevance: bool | None = None) -> Work:
    """Return the work of a calibration; see docs/calibration.md for its cost in forward passes.

    Args:
        job: Its images and settings.
        spec: The model's shape.
        relevance: Whether it computes relevance; by default as the settings say.

    Raises:
        RecipeError: There is no --images.
        ImageError: There are none in that place.
    """
    settings, place = job.calibration.settings, needed(job.images.images, "--images", "a folder of images")
    wanted = AUTO if settings.max_images == "auto" else settings.max_images
    images, passes = len(sample(images_at(place), wanted, job.images.seed).files), 1.0
    if settings.relevance if relevance is None else relevance:
        # Of each image and class, in its own dtype; float64 takes twice as long.
        classes = settings.classes_of(max(1, spec.num_classes), spec.name)
        passes += RELEVANCE_PASSES * classes * (2 if settings.dtype == "float64" else 1)
    return Work("calibration", images, images * passes * dense_macs(spec).total)


def search_work(job: Job, speedup: Speedup, macs: float) -> Work:
    """Return the work of a search for rho; `macs` are those of both models for one image."""
    measuring = job.measuring
    runs = speedup.measurements * (measuring.rounds + WARMUP_ROUNDS) * measuring.batch
    return Work("search for rho", runs, float(runs * macs), lowered=speedup.measurements + 1)


@cache
def speed_here() -> float:
    """Return the multiply-adds a second of a matrix product in fp32 on this CPU, measured once a process."""
    left, right = torch.ones(ROWS, INNER), torch.ones(INNER, COLUMNS)
    left @ right
    start_s, runs = time.perf_counter(), 0
    while (spent_s := time.perf_counter() - start_s) < SPENT_S:
        left @ right
        runs += 1
    return runs * ROWS * INNER * COLUMNS / spent_s


def guessed_s(work: Iterable[Work], macs_per_s: float) -> tuple[float, float]:
    """Return the least and the most seconds that the steps may take together."""
    images, macs, lowered = (
        sum(column) for column in zip(*((e.images, e.macs, e.lowered) for e in work), strict=True)
    )
    low, high = (
        start + lowered * lowering + images * image + macs / (macs_per_s * reached)
        for start, lowering, image, reached in zip(START_S, LOWERING_S, IMAGE_S, REACHED, strict=True)
    )
    return low, high
