"""What to find, and the choice among measured candidates, judged on images that it has not read."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Annotated

from msgspec import Meta

from exporter.core.base.errors import RecipeError
from exporter.core.base.intervals import least_images, loss_interval
from exporter.core.base.records import Pair
from exporter.core.base.settings import LARGEST, Above0, Points, Settings, option
from exporter.core.base.targets import RUNTIMES, TARGETS
from exporter.core.base.vocabulary import Status
from exporter.measure.accuracy import Predictions
from exporter.measure.benchmark import Ratio, Throughput, TradePoint, ratio_of
from exporter.measure.loss import PairResult, compare_predictions, loss_of
from exporter.tuning.ways import Candidate, Way

Above1 = Annotated[float, Meta(gt=1, le=LARGEST, description="a number above 1")]

GOALS = ("max_drop", "max_ms", "speedup")
METRICS = ("top1", "agreement")
# Standard errors that are added to a loss.
ERRORS = 2.0
# Ways of a network that are left once its ways are screened.
LEFT = 2
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
        None,
        "Largest median latency of a batch, in ms: find the most accurate model within it.",
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
        None,
        "Use only this runtime; by default all that are installed.",
        RUNTIMES,
        group="target",
    )
    target: str | None = option(
        None, "Use only this runtime and precision.", TARGETS, group="target"
    )

    def check(self) -> None:
        """Raise RecipeError unless exactly one goal is given."""
        super().check()
        goals = [name for name in GOALS if getattr(self, name) is not None]
        if len(goals) != 1:
            subject, got = " and ".join(goals) or "tune", "several goals"
            expected = f"one of {', '.join(GOALS)}"
            raise RecipeError(subject, got if goals else "no goal", expected)

    def reached(self, median_ms: float, gain: Ratio) -> bool:
        """Whether a time reaches the goal; where that is a loss, whether it is better than the unpruned model's."""
        if self.max_ms is not None:
            return median_ms <= self.max_ms
        if self.speedup is None:
            return gain.median > 1
        return gain.quartiles[0] >= self.speedup


@dataclass(frozen=True)
class Timed:
    """One model on one target, timed in one run with all others."""

    throughput: Throughput
    file_bytes: int


@dataclass(frozen=True)
class InOneRun:
    """A candidate, the unpruned model on the same target, and that in fp32 on ONNX Runtime."""

    candidate: Timed
    unpruned: Timed
    base: Timed


@dataclass(frozen=True)
class Point:
    """A measured candidate: its loss on the search half, and its time in one run with the unpruned model.

    `margin_points` is the loss plus two standard errors. `speed_up` is over the unpruned model on the same target,
    `gain` over that in fp32 on ONNX Runtime, in the same run. `images_per_s` is the speed of the latter, once for
    the whole search, times the gain.
    """

    candidate: Candidate
    gmacs: float
    loss: PairResult
    margin_points: float
    timed: Timed
    speed_up: Ratio
    gain: Ratio
    images_per_s: float

    @property
    def median_ms(self) -> float:
        """The median time of a batch at that speed."""
        return 1e3 * self.timed.throughput.batch / self.images_per_s

    @property
    def loss_points(self) -> float:
        """The loss, in points: images without labels have the unpruned model's."""
        return self.loss.loss_points or 0.0

    @property
    def trade_point(self) -> TradePoint:
        """Its speed and its loss, two standard errors to each side."""
        loss = self.loss_points
        limits = (2 * loss - self.margin_points, self.margin_points)
        return TradePoint(self.candidate.label, self.images_per_s, loss, limits)


@dataclass(frozen=True)
class Judged:
    """The loss of the choice on the final half, and its status."""

    status: Status
    loss: PairResult


@dataclass(frozen=True)
class TuneResult:
    """What a search found. `choice` and what follows from it are None if nothing reaches the goal.

    `judged` is measured on the final half, which no choice has read; the losses of `tried` on the search half.
    `front` has the labels of those that no other one beats in both speed and loss.
    `unpruned` has images per second by target. `parity` is None where there is no pair. `calibration_skipped` is
    empty where a calibration was given.
    """

    model: str
    settings: TuneSettings
    candidates: int
    images: int
    unpruned: dict[str, float]
    tried: tuple[Point, ...]
    front: tuple[str, ...]
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
    candidate: Candidate,
    macs: float,
    answers: Pair[Predictions],
    times: InOneRun,
    base_rate: float,
) -> Point:
    """Return a measured candidate.

    Args:
        candidate: On its target.
        macs: Multiply-adds of an image.
        answers: The unpruned model's in fp32, and the candidate's.
        times: The candidate's, and those that it is compared with.
        base_rate: Images per second of the unpruned model in fp32 on ONNX Runtime, once for the whole search.
    """
    gain = ratio_of(times.base.throughput, times.candidate.throughput)
    return Point(
        candidate=candidate,
        gmacs=macs / 1e9,
        loss=loss_of_choice(answers),
        margin_points=100 * margin_of(answers),
        timed=times.candidate,
        speed_up=ratio_of(times.unpruned.throughput, times.candidate.throughput),
        gain=gain,
        images_per_s=base_rate * gain.median,
    )


def loss_of_choice(answers: Pair[Predictions]) -> PairResult:
    """Return what a candidate loses against the unpruned model, without the classes."""
    return compare_predictions(answers.dense, answers.pruned, ("unpruned", "candidate"))


def margin_of(answers: Pair[Predictions]) -> float:
    """Return the loss plus two standard errors, as a share: what a candidate qualifies by.

    Without them, the fastest of many would be one whose loss was measured too low. Half an image is added to each
    way in which two models can differ or agree (Agresti and Min 2005, Statistics in Medicine 24): few images
    without a difference show little.
    """
    lost, gained = loss_of(answers.dense.hits[:, 0], answers.pruned.hits[:, 0])
    images = len(answers.dense.labels) + 2
    mean = (lost - gained) / images
    variance = (lost + gained + 1) / images - mean**2
    return mean + ERRORS * sqrt(variance / images)


def most_accurate(ways: Sequence[Way], right: Callable[[Way], int]) -> list[Way]:
    """Return the ways of each network that have most images right, at most `LEFT`; of equal ones the earlier.

    `right` is the number of images at one share of the multiply-adds saved.
    """
    networks = dict.fromkeys(way[0].weights for way in ways)
    best = list[Way]()
    for weights in networks:
        of_network = [way for way in ways if way[0].weights == weights]
        best += sorted(of_network, key=right, reverse=True)[:LEFT]
    return best


def around(
    way: Way, beyond: Callable[[Candidate], bool], count: int, *, milder: bool
) -> list[Candidate]:
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
    within = (
        settings.max_drop is None or point.margin_points <= settings.max_drop + ROUNDING
    )
    return within and settings.reached(point.median_ms, point.gain)


def chosen(points: Sequence[Point], settings: TuneSettings) -> Point | None:
    """Return the fastest that qualifies by its loss, or by its time the one that loses least.

    Few images show no loss to be small. Where none qualifies, it is the most accurate of those that are fast and
    whose measured loss is within the limit; None where even that is not. Of equal losses, the higher agreement
    decides: it tells more of few images.
    """
    qualified = [point for point in points if qualifies(point, settings)]
    limit = settings.max_drop
    if limit is not None:
        if qualified:
            return max(qualified, key=lambda point: point.images_per_s)
        within = [point for point in points if point.loss_points <= limit + ROUNDING]
        qualified = [
            point for point in within if settings.reached(point.median_ms, point.gain)
        ]
    return min(
        qualified,
        key=lambda point: (point.margin_points, -point.loss.agreement, point.median_ms),
        default=None,
    )


def judged(answers: Pair[Predictions], max_drop: float | None) -> Judged:
    """Judge the choice by the answers to the final half.

    Met where the whole interval of the loss is within the limit, missed where all of it is beyond; without a
    limit, met.
    """
    loss, status = loss_of_choice(answers), Status.MET
    assert loss.loss_interval_points is not None
    least, most = loss.loss_interval_points
    if max_drop is not None and most > max_drop:
        status = Status.MISSED if least > max_drop else Status.NOT_SHOWN
    return Judged(status, loss)


def images_needed(max_drop: float, changed: float = 0.0) -> int:
    """Return how many final images would show a loss within the limit, in points, if as many are gained as lost.

    `changed` is the share of images that are lost or gained.
    """

    def shows(images: int) -> bool:
        half = changed / 2 * images
        return 100 * loss_interval(half, half, images)[1] <= max_drop

    return least_images(shows)
