"""What the second of two models loses against the first on the same images, and how much of it was won back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exporter.evaluation.accuracy import Accuracy, Predictions
from exporter.intervals import (
    Interval,
    loss_bound,
    loss_interval,
    mcnemar,
    mean_interval,
    wilson,
)
from exporter.records import Pair
from exporter.tensor_names import Array
from exporter.vocabulary import Status


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
        """What the points of the loss are of, with their interval."""
        low, high = self.loss.loss_interval_points or (np.nan, np.nan)
        return (
            f"of top-1 lost against the unpruned model before fine-tuning ({self.accuracy.dense.top1:.2%}); "
            f"95 % {low:.2f} to {high:.2f}, as finetune recorded on {self.loss.images} images of {self.place}"
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


def recovery_of(dense: Array, before: Array, after: Array, goal: float = GOAL) -> Recovery:
    """Judge from the images that each of three models has right, bool [images], the same for all.

    The surplus is the mean over images of (after − before) − goal · (dense − before), whose limits are those
    of a mean with a normal distribution. `before` and `after` training are those of the pruned model; `goal`
    is the share of the loss to win back.
    """
    lost = float(dense.mean() - before.mean())
    won = float(after.mean() - before.mean())
    least_loss, _ = loss_interval(*loss_of(dense, before), len(dense))
    surplus = 100 * ((after.astype(float) - before) - goal * (dense.astype(float) - before))
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


@dataclass(frozen=True)
class Agreement:
    """How the embeddings of a second model agree with the first's, on the same images.

    `embedding_cosine` is the mean over images, `embedding_cosine_least` the lowest. `retrieval_at_1` is the share
    of images whose nearest other image, by cosine among the first model's embeddings, is the same whichever model
    embeds the image itself; with its 95 % interval (Wilson). Both are None for a single image.
    """

    images: int
    embedding_cosine: float
    embedding_cosine_least: float
    retrieval_at_1: float | None
    retrieval_interval: Interval | None


def agreement_of(first: Embeddings, second: Embeddings) -> Agreement:
    """Compare the embeddings of two models, usually the dense and the pruned one; equal ones go to the first image.

    Both have the same images, at least one, in the same order.
    """
    gallery = _directions(first.values)
    queries = _directions(second.values)
    cosine = (gallery * queries).sum(axis=1)
    images = len(gallery)
    neighbours = zip(_nearest(gallery, gallery), _nearest(queries, gallery), strict=True)
    same = sum(int((before == after).sum()) for before, after in neighbours)
    alone = images < 2
    return Agreement(
        images=images,
        embedding_cosine=float(cosine.mean()),
        embedding_cosine_least=float(cosine.min()),
        retrieval_at_1=None if alone else same / images,
        retrieval_interval=None if alone else wilson(same, images),
    )


def _directions(values: Array) -> Array:
    values = values.astype(np.float64)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(length == 0, 1.0, length)


def _nearest(queries: Array, gallery: Array) -> Iterator[Array]:
    """Yield the place of the nearest of the other images, for a part of the queries at a time."""
    for start in range(0, len(queries), ROWS):
        similar = queries[start : start + ROWS] @ gallery.T
        rows = np.arange(len(similar))
        similar[rows, start + rows] = -np.inf
        yield similar.argmax(axis=1)
