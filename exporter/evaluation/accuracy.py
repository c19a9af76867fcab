"""Measure top-1 and top-5 accuracy of one runner over labelled images."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.errors import ImageError, UserError
from exporter.runtimes.base import Runner
from exporter.tensor_names import IMAGES, LOGITS

__all__ = ["Accuracy", "Predictions", "evaluate", "predict", "top_classes"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Accuracy:
    """Top-1 and top-5 as shares from 0 to 1 of `images`, and the counts of hits.

    With fewer than five classes, top-5 counts all classes.
    """

    top1: float
    top5: float
    images: int
    top1_hits: int
    top5_hits: int


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predicted classes of each image, in the order of the batches.

    `best` [images, up to 5] are the classes of the highest logits, best first; `labels` [images] the true ones.
    """

    best: Array
    labels: Array

    @property
    def hits(self) -> Array:
        """Whether each of the best classes is the true one; bool, shaped like `best`."""
        return self.best == self.labels[:, None]

    @property
    def accuracy(self) -> Accuracy:
        """The accuracy over all images."""
        images, top1, top5 = len(self.labels), int(self.hits[:, 0].sum()), int(self.hits.sum())
        return Accuracy(top1 / images, top5 / images, images, top1_hits=top1, top5_hits=top5)


def top_classes(logits: Array, count: int) -> Array:
    """Return the best classes of each image, best first; of equal logits, the lower class comes first.

    Args:
        logits: [images, classes], finite.
        count: Number of classes to return; all if there are fewer.
    """
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


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
    best, true = [], []
    with runner:
        returned = [info.name for info in runner.outputs]
        if LOGITS not in returned:
            raise UserError(
                runner.name, f"the outputs {', '.join(returned)}", f"{LOGITS}, to count classes by"
            )
        for batch, labels in batches:
            logits = runner.run({IMAGES: batch})[LOGITS]
            _check(runner.name, logits, labels)
            best.append(top_classes(logits, 5))
            true.append(labels)
    if not any(len(labels) for labels in true):
        raise ImageError(runner.name, "no labelled image", "at least one")
    return Predictions(np.concatenate(best), np.concatenate(true))


def _check(name: str, logits: Array, labels: Array) -> None:
    images, classes = logits.shape
    if labels.shape != (images,) or labels.dtype.kind not in "iu":
        raise ImageError(f"{name}: labels", f"{labels.dtype}{list(labels.shape)}", f"{images} integers")
    if images and not (labels.min() >= 0 and labels.max() < classes):
        raise ImageError(f"{name}: labels", f"{labels.min()} to {labels.max()}", f"0 to {classes - 1}")
    if not np.isfinite(logits).all():
        raise UserError(f"{name}: {LOGITS}", "NaN or infinite values", "finite ones")
