"""How a model without classes agrees with another on the same images: by its embeddings, labels or values."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.core.base.intervals import Interval, wilson
from exporter.core.base.records import Output, Pair
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import OutputKind
from exporter.core.verify.differences import top_classes
from exporter.data.images import UNKNOWN

logger = logging.getLogger(__name__)

# Rows of similarities that are in memory at a time.
ROWS = 1024
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


@dataclass(frozen=True)
class Deviations:
    """How the labels or the values of a head differ from the dense model's on the same images."""

    images: int
    numbers: tuple[Deviation, ...]

    @property
    def by_movement(self) -> list[Deviation]:
        """The numbers, those that moved most first."""
        return sorted(self.numbers, key=lambda number: -number.moved)

    @property
    def is_near(self) -> bool:
        """Whether no label or value is another for a tenth of the images, or by a tenth of its deviation."""
        return self.by_movement[0].moved <= 1 - NEAR


def deviations_of(
    first: Array, second: Array, output: Output, names: Sequence[str] = ()
) -> Deviations:
    """Compare the labels or values that two models give for the same images, each [images, numbers].

    `names` are those of the numbers; without, they are counted.
    """
    judge = _label if output.kind == OutputKind.LABELS else _value
    numbers = output.numbers(names)
    columns = zip(numbers, first.T.astype(float), second.T.astype(float), strict=True)
    deviations = Deviations(len(first), tuple(judge(*column) for column in columns))
    if not deviations.is_near:
        worst = deviations.by_movement[0]
        unit = "of its deviation" if worst.same_side is None else "of the images"
        text = "%s is not what the dense model says: it moved by %.2f %s"
        logger.warning(text, worst.name, worst.moved, unit)
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


def agreement_of(first: Array, second: Array, labels: Array) -> Agreement:
    """Compare the embeddings of two models, usually the dense and the pruned one; equal ones go to the first image.

    Both are [images, channels], of the same images, at least one, whose classes are `labels`. A low cosine is said
    in a warning: the mean hides it.
    """
    ours, theirs = _directions(first), _directions(second)
    cosine = (ours * theirs).sum(axis=1)
    least = float(cosine.min())
    if least < NEAR:
        text = "embeddings of %d of %d images have a cosine below %g with the dense model's, the lowest %.4f"
        logger.warning(text, (cosine < NEAR).sum(), len(cosine), NEAR, least)
    retrieval = _retrieval(ours, theirs, labels) if len(ours) > 1 else None
    return Agreement(len(ours), float(cosine.mean()), least, retrieval)


def compare_vectors(
    first: Array,
    second: Array,
    labels: Array,
    output: Output,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare an output without classes of two models: return its `agreement`, or of a head its `deviations`.

    `labels` are the classes of the images, and `names` those of the numbers of a head.
    """
    if output.kind == OutputKind.EMBEDDING:
        return {"agreement": agreement_of(first, second, labels)}
    return {"deviations": deviations_of(first, second, output, names)}


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
