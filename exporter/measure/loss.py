"""What the second of two models loses against the first on the same images, and how much of it was won back."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exporter.core.base.intervals import (
    Interval,
    loss_interval,
    mean_interval,
    wilson,
)
from exporter.core.base.records import Pair
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import Status
from exporter.measure.accuracy import Accuracy, Predictions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClassChange:
    """The images of one class, and how many of them each model classifies correctly."""

    label: int
    name: str
    images: int
    first_hits: int
    second_hits: int

    @property
    def change(self) -> int:
        """How many more images of the class the second model classifies correctly."""
        return self.second_hits - self.first_hits


@dataclass(frozen=True)
class PairResult:
    """Two models on the same images. What needs labels is None without them, and `classes` is empty.

    `agreement` is the share of images to which both models give the same class, with its 95 % interval (Wilson).
    `lost` counts the images that only the first model classifies correctly, `gained` those that only the second
    does. `loss_points` is the top-1 of the first minus that of the second, in percentage points, with its 95 %
    interval (Tango).
    """

    first: str
    second: str
    images: int
    agreement: float
    agreement_interval: Interval
    loss_points: float | None = None
    loss_interval_points: Interval | None = None
    lost: int | None = None
    gained: int | None = None
    classes: tuple[ClassChange, ...] = ()

    @property
    def is_loss(self) -> bool:
        """Whether a loss is shown: its interval lies above 0."""
        return (
            self.loss_interval_points is not None and self.loss_interval_points[0] > 0
        )


def compare_predictions(
    first: Predictions,
    second: Predictions,
    names: Sequence[str],
    class_names: Mapping[int, str] | None = None,
) -> PairResult:
    """Compare the predictions of two models, named by `names`, for the same images in the same order.

    Classes are listed under their `class_names`, or indices; not at all where these are None.
    """
    images = len(first.labels)
    same = int((first.best[:, 0] == second.best[:, 0]).sum())
    pair = PairResult(
        names[0],
        names[1],
        images,
        agreement=same / images,
        agreement_interval=wilson(same, images),
    )
    if not first.labelled:
        return pair
    before = first.hits[:, 0]
    after = second.hits[:, 0]
    lost, gained = loss_of(before, after)
    low, high = loss_interval(lost, gained, images)
    return replace(
        pair,
        loss_points=100 * (lost - gained) / images,
        loss_interval_points=(100 * low, 100 * high),
        lost=lost,
        gained=gained,
        classes=()
        if class_names is None
        else _by_class(first.labels, before, after, class_names),
    )


def loss_of(first: Array, second: Array) -> tuple[int, int]:
    """Return how many images only the first model has right, and only the second; bool [images]."""
    return int((first & ~second).sum()), int((second & ~first).sum())


def _by_class(
    labels: Array, before: Array, after: Array, names: Mapping[int, str]
) -> tuple[ClassChange, ...]:
    """Count the images and the hits of each class that occurs, in ascending order."""
    images = np.bincount(labels)
    first = np.bincount(labels[before], minlength=len(images))
    second = np.bincount(labels[after], minlength=len(images))
    return tuple(
        ClassChange(
            label,
            names.get(label, str(label)),
            int(images[label]),
            int(first[label]),
            int(second[label]),
        )
        for label in np.flatnonzero(images).tolist()
    )


@dataclass(frozen=True)
class Tuned:
    """What fine-tuning measured on images of `place`: the unpruned model before it, and the pruned one after it.

    The weights of the second are in the file that keeps this. `earlier` is the record of the first, where that was
    a fine-tuned file too.
    """

    place: str
    accuracy: Pair[Accuracy]
    loss: PairResult
    earlier: "Tuned | None" = None

    @property
    def every(self) -> "tuple[Tuned, ...]":
        """This record, and the earlier ones."""
        return (self, *(() if self.earlier is None else self.earlier.every))


@dataclass(frozen=True)
class Gain:
    """What a change gains on `held_out` images, without labels, after it was made from `read` others.

    `divergence` (`training.divergence`) is the mean without the change, `gain` by how much it is lower with
    it, `interval` the 95 % interval of that. Above 0 is better.
    """

    divergence: float
    gain: float
    interval: Interval
    read: int
    held_out: int

    @property
    def shown(self) -> bool:
        """Whether the interval lies above 0."""
        return self.interval[0] > 0.0


# Half of the loss.
GOAL = 0.5
CONFIDENCE = 0.95  # of a one-sided limit


@dataclass(frozen=True)
class Recovery:
    """The share of the lost top-1 that was won back; the goal, and its status.

    The share is None where no loss is shown: its 95 % interval (Tango) has 0.

    `surplus_points` is how far top-1 is above what the goal demands, in percentage points, and
    `surplus_interval_points` its one-sided limits of 95 % confidence either way: met if the lower one is at least
    0, missed if the upper one is below.
    """

    share: float | None
    goal: float
    status: Status
    surplus_points: float
    surplus_interval_points: tuple[float, float]


def recovery_of(dense: Array, before: Array, after: Array) -> Recovery:
    """Judge from the images that each of three models has right, bool [images], the same for all.

    The surplus is the mean over images of (after − before) − GOAL · (dense − before), whose limits are those
    of a mean with a normal distribution. `before` and `after` training are those of the pruned model.
    """
    lost = float(dense.mean() - before.mean())
    won = float(after.mean() - before.mean())
    least_loss, _ = loss_interval(*loss_of(dense, before), len(dense))
    surplus = 100 * (
        (after.astype(float) - before) - GOAL * (dense.astype(float) - before)
    )
    low, high = mean_interval(surplus, 2 * CONFIDENCE - 1)
    status = Status.MET if low >= 0 else Status.MISSED if high < 0 else Status.NOT_SHOWN
    share = won / lost if least_loss > 0 else None
    return Recovery(share, GOAL, status, float(surplus.mean()), (low, high))
