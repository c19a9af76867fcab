"""What to find, and the choice among measured candidates, judged on images that it has not read."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import sqrt
from typing import Annotated, Any

from msgspec import Meta

from exporter.evaluation.benchmark import Ratio, Throughput, ratio_of
from exporter.evaluation.intervals import loss_bound, loss_interval
from exporter.evaluation.loss import loss_of
from exporter.runtimes.choice import RUNTIMES
from exporter.settings.fields import LARGEST, Points, Settings, option
from exporter.targets import TARGETS
from exporter.tensor_names import Array
from exporter.vocabulary import Status
from exporter.workflows.tuning.ways import Candidate, Way

Above0 = Annotated[float, Meta(gt=0, le=LARGEST, description="a number above 0")]
Above1 = Annotated[float, Meta(gt=1, le=LARGEST, description="a number above 1")]

METRICS = ("top1", "agreement")
# Standard errors that are added to a loss.
ERRORS = 2.0
# Ways that are left at least, where there are so many.
LEFT = 4
# The share of answers that change in a usual choice.
USUAL = 0.04
# Points of rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class TuneSettings(Settings):
    """What to find: one goal, and where."""

    max_drop: Points | None = option(
        None,
        "Largest loss of top-1 against the unpruned model, in percentage points: find the fastest model.",
    )
    max_ms: Above0 | None = option(
        None, "Largest median latency of a batch, in ms: find the most accurate model within it."
    )
    speedup: Above1 | None = option(
        None,
        "Images per second, as a multiple of those of the unpruned model in fp32 on ONNX Runtime: find the most "
        "accurate model that reaches it.",
    )
    metric: str = option(
        "top1",
        "top1: accuracy, needs labels. agreement: images with the same class as from the unpruned model.",
        METRICS,
        group="advanced",
    )
    runtime: str | None = option(
        None, "Use only this runtime; by default all that are installed.", RUNTIMES, group="target"
    )
    target: str | None = option(None, "Use only this runtime and precision.", TARGETS, group="target")

    def check(self) -> None:
        """Raise RecipeError unless exactly one goal is given."""
        super().check()
        goals = sum(each is not None for each in (self.max_drop, self.max_ms, self.speedup))
        self.require("max_drop", goals == 1, "one goal: max_drop, max_ms or speedup")

    def reached(self, median_ms: float, gain: Ratio) -> bool:
        """Whether a time reaches the goal; where that is a loss, whether it is better than the unpruned model's."""
        if self.max_ms is not None:
            return median_ms <= self.max_ms
        return gain.median > 1 if self.speedup is None else gain.quartiles[0] >= self.speedup


@dataclass(frozen=True)
class Timed:
    """One model on one target, timed in one run with all others."""

    throughput: Throughput
    file_bytes: int


@dataclass(frozen=True)
class Point:
    """A measured candidate: loss on the search half, in points, and speed in one run with the unpruned model.

    `gain` is over the unpruned model in fp32 on ONNX Runtime. `margin_points` is the loss plus two standard errors,
    `agreement` the share of images that get the unpruned model's class.
    """

    candidate: Candidate
    gmacs: float
    loss_points: float
    margin_points: float
    agreement: float
    images: int
    images_per_s: float
    median_ms: float
    gain: Ratio
    file_bytes: int


@dataclass(frozen=True)
class Judged:
    """The loss of the choice on the final half, in points, with its one-sided 95 % limit, and its status."""

    status: Status
    images: int
    loss_points: float
    bound_points: float
    agreement: float


@dataclass(frozen=True)
class TuneResult:
    """What a search found. `choice` and what follows from it are None if nothing reaches the goal.

    `judged` is measured on the final half, which no choice has read; the losses of `tried` and `front` on the
    search half. `unpruned` has images per second by target. `parity` is None where there is no pair.
    `calibration_skipped` is empty where a calibration was given.
    """

    model: str
    settings: TuneSettings
    candidates: int
    images: int
    unpruned: dict[str, float]
    tried: tuple[Point, ...]
    front: tuple[Point, ...]
    choice: Point | None = None
    judged: Judged | None = None
    recipe: str | None = None
    parity: bool | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    calibration_skipped: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        if self.choice is None or self.judged is None:
            return f"<TuneResult {self.model}: nothing found>"
        return f"<TuneResult {self.model}: {self.choice.gain.median:.2f} ×, {self.judged.status}>"


def point_of(
    candidate: Candidate, macs: float, right: tuple[Array, Array], same: Array, timed: tuple[Timed, Timed]
) -> Point:
    """Return a measured candidate.

    `right` has which images the unpruned model has right, and which the candidate has; `same`, which get the
    same class from both: all bool [images]. Both were timed in one run.
    """
    (lost, gained), images = loss_of(*right), len(right[0])
    base, own = (each.throughput for each in timed)
    return Point(
        candidate=candidate,
        gmacs=macs / 1e9,
        loss_points=100 * (lost - gained) / images,
        margin_points=100 * margin_of(*right),
        agreement=float(same.mean()),
        images=images,
        images_per_s=own.images_per_s,
        median_ms=own.median_ms,
        gain=ratio_of(base, own),
        file_bytes=timed[1].file_bytes,
    )


def margin_of(dense: Array, other: Array) -> float:
    """Return the loss plus two standard errors, as a share: what a candidate qualifies by.

    Without them, the fastest of many would be one whose loss was measured too low. Half an image is added to each
    way in which two models can differ or agree (Agresti and Min 2005, Statistics in Medicine 24): few images
    without a difference show little.
    """
    lost, gained = loss_of(dense, other)
    images = len(dense) + 2
    mean = (lost - gained) / images
    variance = (lost + gained + 1) / images - mean**2
    return mean + ERRORS * sqrt(variance / images)


def different(ways: Sequence[Way], right: Callable[[Way], int]) -> list[Way]:
    """Return the way of each method and reduction that has most images right, then the best others, up to `LEFT`.

    Few images rank similar ways by chance, and of equal multiply-adds, some methods take longer. Ways of
    other weights compete among themselves. `right` is the number of images at one share.
    """
    ranked = sorted(ways, key=right, reverse=True)
    best: dict[Any, Way] = {}
    for way in ranked:
        weights, prune = way[0].weights, way[0].prune
        best.setdefault((weights, prune and (prune.planned_by, prune.reduced_by)), way)
    others = (way for way in ranked if way not in best.values())
    return [*best.values(), *islice(others, max(0, LEFT - len(best)))]


def around(way: Way, beyond: Callable[[Candidate], bool], count: int, *, milder: bool) -> list[Candidate]:
    """Return some shares of a way at the edge of a goal, which is found by bisection.

    Args:
        way: Its shares, the smallest one first.
        beyond: Whether a share is past the edge; so are all larger ones.
        count: How many.
        milder: The last share before the edge, then smaller ones in steps of two: a loss is measured on few images,
            and its errors count too. Otherwise the first share past the edge, and its neighbours.
    """
    edge = bisect_left(way, True, key=beyond)
    edge = max(edge - 1, 0) if milder else min(edge, len(way) - 1)

    def order(place: int) -> tuple[bool, int]:
        return milder and (place > edge or (edge - place) % 2 > 0), abs(place - edge)

    return [way[place] for place in sorted(range(len(way)), key=order)[:count]]


def qualifies(point: Point, settings: TuneSettings) -> bool:
    """Whether a candidate is fast, and within the loss with its errors, on the search half."""
    within = settings.max_drop is None or point.margin_points <= settings.max_drop + ROUNDING
    return within and settings.reached(point.median_ms, point.gain)


def chosen(points: Sequence[Point], settings: TuneSettings) -> Point | None:
    """Return the fastest that qualifies by its loss, or by its time the one that loses least.

    Few images show no loss to be small. Where none qualifies, it is the most accurate of those that are fast and
    whose measured loss is within the limit; None where even that is not. Of equal losses, the higher agreement
    decides: it tells more of few images.
    """
    qualified = [each for each in points if qualifies(each, settings)]
    limit = settings.max_drop
    if limit is not None:
        if qualified:
            return max(qualified, key=lambda each: each.images_per_s)
        within = (each for each in points if each.loss_points <= limit + ROUNDING)
        qualified = [each for each in within if settings.reached(each.median_ms, each.gain)]
    return min(
        qualified, key=lambda each: (each.margin_points, -each.agreement, each.median_ms), default=None
    )


def judged(dense: Array, own: Array, same: Array, max_drop: float | None) -> Judged:
    """Judge the choice by the images of the final half that the unpruned model and the choice have right.

    `same` are those that get the same class from both; all are bool [images].

    Met where the one-sided limit is within the loss, missed where the other one is beyond it; without a limit, met.
    """
    lost, gained = loss_of(dense, own)
    images = len(dense)
    bound = loss_bound(lost, gained, images)
    status = Status.MET
    if max_drop is not None and 100 * bound > max_drop:
        least = loss_interval(lost, gained, images, confidence=0.9)[0]
        status = Status.MISSED if 100 * least > max_drop else Status.NOT_SHOWN
    return Judged(status, images, 100 * (lost - gained) / images, 100 * bound, float(same.mean()))


def front(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other one beats in both speed and loss, fastest first."""
    kept: list[Point] = []
    for each in sorted(points, key=lambda each: (-each.images_per_s, each.loss_points)):
        if not kept or each.loss_points < kept[-1].loss_points:
            kept.append(each)
    return tuple(kept)


def images_needed(max_drop: float, changed: float = 0.0) -> int:
    """Return how many final images would show a loss within the limit, in points, if as many are gained as lost.

    `changed` is the share of images that are lost or gained.
    """

    def shows(images: int) -> bool:
        return 100 * loss_bound(changed / 2 * images, changed / 2 * images, images) <= max_drop

    high = 1
    while not shows(high) and high < 1 << 40:
        high *= 2
    return bisect_left(range(high), True, lo=max(1, high // 2), key=shows)
