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
    judge = _label if output.kind == OutputKind.LABELS else _value
    numbers = output.numbers(names)
    columns = zip(numbers, first.T.astype(float), second.T.astype(float), strict=True)
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
