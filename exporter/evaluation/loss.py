"""What the second of two models loses against the first on the same images, and how much of it was won back."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exporter.data.images import UNKNOWN
from exporter.evaluation.accuracy import Accuracy, Predictions, top_classes
from exporter.intervals import (
    Interval,
    loss_bound,
    loss_interval,
    mcnemar,
    mean_interval,
    wilson,
)
from exporter.records import Output, Pair
from exporter.tensor_names import Array
from exporter.vocabulary import OutputKind, Status

logger = logging.getLogger(__name__)


def points_words(points: float) -> str:
    """Return a loss in points as "0.90 lost", a negative one as "0.90 won"."""
    number = f"{abs(points):.2f}"
    if float(number) == 0:
        return number
    return f"{number} {'lost' if points > 0 else 'won'}"


def interval_words(interval: Interval) -> str:
    """Return the limits of a loss in points, as "0.30 won to 2.20 lost"."""
    low, high = interval
    return f"{points_words(low)} to {points_words(high)}"


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
    interval (Tango); `loss_bound_points` is its one-sided upper limit of 95 % confidence. `mcnemar_p` is the
    two-sided p-value of McNemar's exact test.
    """

    first: str
    second: str
    images: int
    agreement: float
    agreement_interval: Interval
    mcnemar_p: float | None = None
    loss_points: float | None = None
    loss_interval_points: Interval | None = None
    loss_bound_points: float | None = None
    lost: int | None = None
    gained: int | None = None
    classes: tuple[ClassChange, ...] = ()

    @property
    def outcome(self) -> str:
        """Whether a loss or a gain is shown, of how many points; "" without labels."""
        if self.loss_points is None or self.loss_interval_points is None:
            return ""
        low, high = self.loss_interval_points
        if low <= 0 <= high:
            return "no loss shown"
        number, _, word = points_words(self.loss_points).partition(" ")
        return f"{number} points of top-1 {word}"

    @property
    def words(self) -> str:
        """The loss with its interval, as "0.90 lost (95 % 0.30 won to 2.20 lost)"; "" without labels."""
        if self.loss_points is None or self.loss_interval_points is None:
            return ""
        limits = interval_words(self.loss_interval_points)
        return f"{points_words(self.loss_points)} (95 % {limits})"


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
        mcnemar_p=mcnemar(lost, gained),
        loss_points=100 * (lost - gained) / images,
        loss_interval_points=(100 * low, 100 * high),
        loss_bound_points=100 * loss_bound(lost, gained, images),
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

    @property
    def words(self) -> str:
        """What the points of the loss are against, and on which images."""
        return (
            f"against the unpruned model before fine-tuning ({self.accuracy.dense.top1:.2%} top-1), "
            f"as finetune recorded on {self.loss.images} images of {self.place}"
        )


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


def recovery_of(
    dense: Array, before: Array, after: Array, goal: float = GOAL
) -> Recovery:
    """Judge from the images that each of three models has right, bool [images], the same for all.

    The surplus is the mean over images of (after − before) − goal · (dense − before), whose limits are those
    of a mean with a normal distribution. `before` and `after` training are those of the pruned model; `goal`
    is the share of the loss to win back.
    """
    lost = float(dense.mean() - before.mean())
    won = float(after.mean() - before.mean())
    least_loss, _ = loss_interval(*loss_of(dense, before), len(dense))
    surplus = 100 * (
        (after.astype(float) - before) - goal * (dense.astype(float) - before)
    )
    low, high = mean_interval(surplus, 2 * CONFIDENCE - 1)
    status = Status.MET if low >= 0 else Status.MISSED if high < 0 else Status.NOT_SHOWN
    share = won / lost if least_loss > 0 else None
    return Recovery(share, goal, status, float(surplus.mean()), (low, high))


# Rows of similarities that are in memory at a time.
ROWS = 1024


@dataclass(frozen=True, eq=False)
class Embeddings:
    """The embeddings of images, [images, channels] float32, in the order of the batches; and their labels."""

    values: Array
    labels: Array


# The nearest images of which the common ones are counted.
NEAREST = 10
# An image whose embeddings have a lower cosine is likely to be taken for another.
NEAR = 0.9


@dataclass(frozen=True)
class Retrieval:
    """Whether the second of two models finds the images that the first finds, by cosine, the image itself left out.

    `dense_index_at_1` is the share of images whose nearest image is the same when the second model embeds the
    query, and the first has embedded the index. `reindexed_at_1` is that share when the second has embedded both;
    `reindexed_overlap` is then the common share of the `nearest` ones, 10 where there are as many. Intervals are
    of 95 % (Wilson). `precision_at_1` is the share of images whose nearest one is of their class, each model
    having its own index; None unless all images have labels.
    """

    dense_index_at_1: float
    dense_index_interval: Interval
    reindexed_at_1: float
    reindexed_interval: Interval
    reindexed_overlap: float
    nearest: int
    precision_at_1: Pair[float] | None = None

    @property
    def rows(self) -> dict[str, str]:
        """The values for people, by what they are."""
        rows = {
            "same nearest: pruned query in the dense index": f"{self.dense_index_at_1:.2%}",
            "same nearest: both re-indexed": f"{self.reindexed_at_1:.2%}",
            f"common among the nearest {self.nearest}, re-indexed": f"{self.reindexed_overlap:.2%}",
        }
        if self.precision_at_1 is not None:
            dense, pruned = self.precision_at_1.dense, self.precision_at_1.pruned
            rows["nearest of the same class (precision@1)"] = (
                f"{dense:.2%} → {pruned:.2%}"
            )
        return rows


@dataclass(frozen=True)
class Agreement:
    """How the embeddings of a second model agree with the first's, on the same images.

    `embedding_cosine` is the mean over images, `embedding_cosine_least` the lowest. `retrieval` is None for a
    single image.
    """

    images: int
    embedding_cosine: float
    embedding_cosine_least: float
    retrieval: Retrieval | None = None

    @property
    def title(self) -> str:
        """What the words are of."""
        return "cosine of the embeddings"

    @property
    def words(self) -> str:
        """The mean, with the lowest beside it."""
        return f"{self.embedding_cosine:.4f} (lowest {self.embedding_cosine_least:.4f})"

    @property
    def sentence(self) -> str:
        """The words in a sentence."""
        return f"embeddings at a cosine of {self.words}"

    @property
    def rows(self) -> dict[str, str]:
        """What else there is for people, by what it is."""
        return {} if self.retrieval is None else self.retrieval.rows

    @property
    def is_near(self) -> bool:
        """Whether no image is likely to be taken for another."""
        return self.embedding_cosine_least >= NEAR


@dataclass(frozen=True)
class Deviation:
    """How far one number of a head is from the dense model's over the images.

    A label has `same_side`, the share of images on which both models say yes or both say no, with its 95 % interval
    (Wilson). A value has the mean and the largest absolute difference, and the standard deviation `std` of the
    dense model's, in its own unit; and the correlation of both models' values, None where one side is the same for
    all images.
    """

    name: str
    same_side: float | None = None
    same_side_interval: Interval | None = None
    mean_difference: float | None = None
    largest_difference: float | None = None
    std: float | None = None
    correlation: float | None = None

    @property
    def moved(self) -> float:
        """The share of images whose label is another, or the mean difference in deviations of the dense value."""
        if self.same_side is not None:
            return 1.0 - self.same_side
        assert self.mean_difference is not None and self.std is not None
        if self.mean_difference == 0:
            return 0.0
        return self.mean_difference / self.std if self.std else math.inf

    @property
    def words(self) -> str:
        """All of it in a line."""
        if self.same_side is not None and self.same_side_interval is not None:
            low, high = self.same_side_interval
            return f"{self.same_side:.2%} the same (95 % {low:.2%} to {high:.2%})"
        correlation = "none" if self.correlation is None else f"{self.correlation:.4f}"
        return (
            f"{self.mean_difference:.4g} on average, at most {self.largest_difference:.4g} "
            f"(the value's deviation is {self.std:.4g}); correlation {correlation}"
        )


# The numbers of a head that are listed, those that moved most; JSON has all.
MOST_LISTED = 5


@dataclass(frozen=True)
class Deviations:
    """How the labels or the values of a head differ from the dense model's on the same images."""

    images: int
    numbers: tuple[Deviation, ...]

    @property
    def title(self) -> str:
        """What the words are of."""
        if self.numbers[0].same_side is None:
            return "mean difference of the values, in their deviations"
        return "the same labels"

    @property
    def column(self) -> str:
        """The title of a narrow column."""
        return "difference" if self.numbers[0].same_side is None else "same labels"

    @property
    def words(self) -> str:
        """The mean over the numbers, with the worst one beside it."""
        moved = [number.moved for number in self.numbers]
        mean, most = sum(moved) / len(moved), max(moved)
        if math.isinf(most):
            return "not told: the dense model's values do not vary"
        if self.numbers[0].same_side is None:
            return f"{mean:.2%} (largest {most:.2%})"
        return f"{1 - mean:.2%} (lowest {1 - most:.2%})"

    @property
    def sentence(self) -> str:
        """The words in a sentence."""
        if self.numbers[0].same_side is None:
            return f"values that differ by {self.words} of their deviations"
        return f"the same labels on {self.words}"

    @property
    def rows(self) -> dict[str, str]:
        """Those that moved most for people, by name."""
        worst = sorted(self.numbers, key=lambda number: -number.moved)
        return {number.name: number.words for number in worst[:MOST_LISTED]}

    @property
    def is_near(self) -> bool:
        """Whether no label or value is another for a tenth of the images, or by a tenth of its deviation."""
        return max(number.moved for number in self.numbers) <= 1 - NEAR


def deviations_of(
    first: Array, second: Array, output: Output, names: Sequence[str] = ()
) -> Deviations:
    """Compare the labels or values that two models give for the same images, each [images, numbers].

    `names` are those of the numbers; without, they are counted.
    """
    names = names or [f"{output.kind[:-1]} {place}" for place in range(first.shape[1])]
    judge = _label if output.kind == OutputKind.LABELS else _value
    columns = zip(names, first.T.astype(float), second.T.astype(float), strict=True)
    deviations = Deviations(len(first), tuple(judge(*column) for column in columns))
    if not deviations.is_near:
        text = "%s: %s; of %s: %s"
        worst, words = next(iter(deviations.rows.items()))
        logger.warning(text, deviations.title, deviations.words, worst, words)
    return deviations


def _label(name: str, first: Array, second: Array) -> Deviation:
    same, images = int(((first > 0) == (second > 0)).sum()), len(first)
    return Deviation(name, same / images, wilson(same, images))


def _value(name: str, first: Array, second: Array) -> Deviation:
    difference = np.abs(second - first)
    varies = np.ptp(first) > 0 and np.ptp(second) > 0
    return Deviation(
        name,
        mean_difference=float(difference.mean()),
        largest_difference=float(difference.max()),
        std=float(first.std()),
        correlation=float(np.corrcoef(first, second)[0, 1]) if varies else None,
    )


def agreement_of(first: Embeddings, second: Embeddings) -> Agreement:
    """Compare the embeddings of two models, usually the dense and the pruned one; equal ones go to the first image.

    Both have the same images, at least one, in the same order. A low cosine is said in a warning: the mean hides
    it.
    """
    ours, theirs = _directions(first.values), _directions(second.values)
    cosine = (ours * theirs).sum(axis=1)
    least = float(cosine.min())
    if least < NEAR:
        text = "embeddings of %d of %d images have a cosine below %g with the dense model's, the lowest %.4f"
        logger.warning(text, (cosine < NEAR).sum(), len(cosine), NEAR, least)
    retrieval = _retrieval(ours, theirs, first.labels) if len(ours) > 1 else None
    return Agreement(len(ours), float(cosine.mean()), least, retrieval)


def compare_vectors(
    first: Embeddings, second: Embeddings, output: Output, names: Sequence[str] = ()
) -> dict[str, Any]:
    """Compare an output without classes of two models: return its `agreement`, or of a head its `deviations`."""
    if output.kind == OutputKind.EMBEDDING:
        return {"agreement": agreement_of(first, second)}
    return {"deviations": deviations_of(first.values, second.values, output, names)}


def _retrieval(ours: Array, theirs: Array, labels: Array) -> Retrieval:
    """Compare the nearest images that directions [images, channels] find; there are two or more."""
    images = len(ours)
    count = min(NEAREST, images - 1)
    dense = _nearest(ours, ours, count)
    queried = _nearest(theirs, ours, 1)
    reindexed = _nearest(theirs, theirs, count)
    in_dense_index = int((queried[:, 0] == dense[:, 0]).sum())
    in_own_index = int((reindexed[:, 0] == dense[:, 0]).sum())
    common = (reindexed[:, :, None] == dense[:, None, :]).any(axis=2)
    precision = None
    if (labels != UNKNOWN).all():
        precision = Pair(
            _same_label(dense[:, 0], labels), _same_label(reindexed[:, 0], labels)
        )
    return Retrieval(
        dense_index_at_1=in_dense_index / images,
        dense_index_interval=wilson(in_dense_index, images),
        reindexed_at_1=in_own_index / images,
        reindexed_interval=wilson(in_own_index, images),
        reindexed_overlap=float(common.mean()),
        nearest=count,
        precision_at_1=precision,
    )


def _same_label(nearest: Array, labels: Array) -> float:
    """Return the share of images whose nearest one has their label."""
    return float((labels[nearest] == labels).mean())


def _directions(values: Array) -> Array:
    values = values.astype(np.float64)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(length == 0, 1.0, length)


def _nearest(queries: Array, index: Array, count: int) -> Array:
    """Return the places of the nearest other images, [images, count], the nearest first."""
    parts = []
    for start in range(0, len(queries), ROWS):
        similar = queries[start : start + ROWS] @ index.T
        rows = np.arange(len(similar))
        similar[rows, start + rows] = -np.inf
        parts.append(top_classes(similar, count))
    return np.concatenate(parts)
