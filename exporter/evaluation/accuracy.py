"""Measure top-1 and top-5 accuracy of models over labelled images, several models in one pass."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.data.images import UNKNOWN
from exporter.errors import ImageError
from exporter.evaluation.answers import Batches, answer_each, require_images
from exporter.evaluation.proportions import Interval, wilson
from exporter.runtimes.base import Runner
from exporter.tensor_names import LOGITS

__all__ = [
    "Accuracy",
    "Predictions",
    "evaluate",
    "predict",
    "predict_each",
    "top_classes",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Accuracy:
    """Top-1 and top-5 as shares from 0 to 1 of `images`, and the counts of hits.

    `interval` is the 95 % interval of top-1 (Wilson). With fewer than five classes, top-5 counts all classes.
    """

    top1: float
    top5: float
    interval: Interval
    images: int
    top1_hits: int
    top5_hits: int

    @classmethod
    def of(cls, *, top1_hits: int, top5_hits: int, images: int) -> "Accuracy":
        """Return the accuracy of these counts; there is at least one image."""
        return cls(
            top1=top1_hits / images,
            top5=top5_hits / images,
            interval=wilson(top1_hits, images),
            images=images,
            top1_hits=top1_hits,
            top5_hits=top5_hits,
        )


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predicted classes of each image, in the order of the batches.

    `best` [images, up to 5] are the classes of the highest logits, best first; `labels` [images] the true ones,
    UNKNOWN where they are not known.
    """

    best: Array
    labels: Array

    @property
    def hits(self) -> Array:
        """Whether each of the best classes is the true one; bool, shaped like `best`."""
        return self.best == self.labels[:, None]

    @property
    def labelled(self) -> bool:
        """Whether the class of every image is known."""
        return bool((self.labels != UNKNOWN).all())

    @property
    def accuracy(self) -> Accuracy:
        """The accuracy over all images."""
        hits = self.hits
        return Accuracy.of(
            top1_hits=int(hits[:, 0].sum()), top5_hits=int(hits.sum()), images=len(self.labels)
        )


def top_classes(logits: Array, count: int) -> Array:
    """Return the best classes of each image, best first; of equal logits, the lower class comes first.

    Args:
        logits: [images, classes], finite.
        count: Number of classes to return; all if there are fewer.
    """
    count = min(count, logits.shape[1])
    if count > 16:
        return np.argsort(-logits, axis=1, kind="stable")[:, :count]
    # A few searches for the maximum, which finds the first of equals, are many times faster than sorting.
    left, rows = logits.astype(np.promote_types(logits.dtype, np.float16)), np.arange(len(logits))
    best = np.empty((len(logits), count), np.int64)
    for place in range(count):
        best[:, place] = left.argmax(axis=1)
        left[rows, best[:, place]] = -np.inf
    return best


def evaluate(runner: Runner, batches: Iterable[tuple[Array, Array]]) -> Accuracy:
    """Run every batch once and return the accuracy; arguments and errors are those of `predict`."""
    return predict(runner, batches).accuracy


def predict(runner: Runner, batches: Iterable[tuple[Array, Array]]) -> Predictions:
    """Run every batch once and return the best classes of each image.

    Args:
        runner: Takes `images` and returns `logits`; other outputs are ignored.
        batches: Images as the runner takes them, and one integer class per image.

    Raises:
        ImageError: There is no image, or a label is not a class of the model.
        UserError: The model returns no logits, or logits that are not finite.
    """
    (found,) = predict_each([runner], _labelled(runner.name, batches))
    require_images(found.labels, runner.name)
    return found


def predict_each(
    runners: Sequence[Runner],
    batches: Batches,
    *,
    classes: Array | None = None,
    size: int = 0,
) -> tuple[Predictions, ...]:
    """Run every batch once on each of the models, in turns, and return the best classes of each image.

    Args:
        runners: Each takes `images` and returns `logits`; other outputs are ignored.
        batches: The images as each of the runners takes them; and one integer class per image, or UNKNOWN.
        classes: Ascending; only their logits are compared. None: all.
        size: Images per run, see `answer_each`.

    Raises:
        ImageError: A label is not a class of a model.
        UserError: A model returns no logits, or logits that are not finite.
    """

    def best_of(name: str, logits: Array, labels: Array) -> Array:
        _check_range(name, logits.shape[1], labels)
        return top_classes(logits, 5) if classes is None else classes[top_classes(logits[:, classes], 5)]

    best, true = answer_each(runners, batches, [LOGITS] * len(runners), best_of, size=size)
    return tuple(Predictions(each, true) for each in best)


def _labelled(name: str, batches: Iterable[tuple[Array, Array]]) -> Iterator[tuple[Sequence[Array], Array]]:
    for images, labels in batches:
        if (labels == UNKNOWN).any():
            raise ImageError(f"{name}: labels", f"{UNKNOWN} for an unknown class", "a class for every image")
        yield (images,), labels


def _check_range(name: str, classes: int, labels: Array) -> None:
    if len(labels) and not (labels.min() >= UNKNOWN and labels.max() < classes):
        raise ImageError(f"{name}: labels", f"{labels.min()} to {labels.max()}", f"0 to {classes - 1}")
