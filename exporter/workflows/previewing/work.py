"""Guess how long steps take from their multiply-adds and the speed of one matrix product on this machine.

It is a guess, not a measurement: models reach between the whole speed of a large product and a sixth of it,
depending on their widths, the runtime and what else runs on the machine.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

__all__ = ["Work", "guessed_s", "speed_here"]

# Seconds to load libraries and a model, and to lower one model: the least and the most that were met.
START_S = (3.0, 15.0)
LOWERING_S = (4.0, 30.0)
# Seconds to decode an image and to bring it to the input size.
IMAGE_S = (0.001, 0.02)
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


def speed_here() -> float:
    """Return the multiply-adds a second of a matrix product in fp32 on this machine's CPU."""
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
