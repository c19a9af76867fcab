"""Choose among measured candidates, and judge the choice on images that it has not read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.evaluation.intervals import loss_bound, loss_interval
from exporter.vocabulary import Status
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.halving import front as _front
from exporter.workflows.tuning.halving import loss_of

__all__ = ["Judged", "Point", "chosen", "front", "images_needed", "judged", "qualifies"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Point:
    """A measured candidate: loss on the search half, in points, and speed in one run with the unpruned model.

    `gain` is over the unpruned model in fp32 on ONNX Runtime. `margin_points` is the loss plus two standard errors.
    """

    candidate: Candidate
    gmacs: float
    loss_points: float
    margin_points: float
    images: int
    images_per_s: float
    median_ms: float
    gain: float
    file_bytes: int


@dataclass(frozen=True)
class Judged:
    """The loss of the choice on the final half, in points, with its one-sided 95 % limit, and its status."""

    status: Status
    images: int
    loss_points: float
    bound_points: float


def qualifies(point: Point, max_drop: float) -> bool:
    """Whether a candidate gains anything within the loss, in points, on the search half; 1e-9 absorbs rounding."""
    return point.gain > 1 and point.margin_points <= max_drop + 1e-9


def chosen(points: Sequence[Point], max_drop: float | None, max_ms: float | None) -> Point | None:
    """Return the fastest that qualifies, or within a latency the one that loses least; None where there is none."""
    if max_ms is not None:
        within = [each for each in points if each.median_ms <= max_ms]
        return min(within, key=lambda each: (each.margin_points, each.median_ms), default=None)
    fit = [each for each in points if max_drop is not None and qualifies(each, max_drop)]
    return max(fit, key=lambda each: each.images_per_s, default=None)


def judged(dense: Array, own: Array, max_drop: float | None) -> Judged:
    """Judge the choice by the images of the final half: bool [images] of the unpruned model and of the choice.

    Met where the one-sided limit is within the loss, missed where the other one is beyond it; without a limit, met.
    """
    lost, gained = loss_of(dense, own)
    images = len(dense)
    bound = loss_bound(lost, gained, images)
    status = Status.MET
    if max_drop is not None and 100 * bound > max_drop:
        least = loss_interval(lost, gained, images, confidence=0.9)[0]
        status = Status.MISSED if 100 * least > max_drop else Status.NOT_SHOWN
    return Judged(status, images, 100 * (lost - gained) / images, 100 * bound)


def front(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other one beats in both speed and loss, fastest first."""
    places = range(len(points))
    best = _front(places, lambda at: points[at].loss_points, {at: -points[at].images_per_s for at in places})
    return tuple(points[at] for at in best)


def images_needed(rates: Mapping[str, float], max_drop: float) -> int:
    """Return how many final images would show a loss within the limit.

    Args:
        rates: The shares of images "lost" and "gained" that are expected.
        max_drop: The limit, in points, above the expected loss.
    """
    low, high = 1, 2
    while _bound(rates, high) > max_drop and high < 1 << 40:
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _bound(rates, middle) <= max_drop else (middle + 1, high)
    return high


def _bound(rates: Mapping[str, float], images: int) -> float:
    return 100 * loss_bound(rates["lost"] * images, rates["gained"] * images, images)
