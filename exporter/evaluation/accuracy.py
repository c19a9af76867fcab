"""Top-1 and top-5 of one runner over labelled images."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.errors import ImageError, UserError
from exporter.runtimes.base import Runner
from exporter.tensor_names import IMAGES, LOGITS

__all__ = ["Accuracy", "accuracy", "top_classes"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Accuracy:
    """Shares from 0 to 1 of `images`; with fewer than five classes, top5 is over as many as there are."""

    top1: float
    top5: float
    images: int


def top_classes(logits: Array, count: int) -> Array:
    """The best classes of each image, best first; equal logits go to the lower class.

    Args:
        logits: [images, classes], finite.
        count: How many; as many as there are classes, where those are fewer.
    """
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


def accuracy(runner: Runner, batches: Iterable[tuple[Array, Array]]) -> Accuracy:
    """Run every batch once and count.

    Args:
        runner: Takes `images`, returns `logits`.
        batches: Images as the runner takes them, and one integer class for each.

    Raises:
        ImageError: There is no image, or a label is no class of the model.
        UserError: The logits are not finite.
    """
    hits = np.zeros(2, int)
    images = 0
    with runner:
        for batch, labels in batches:
            logits = runner.run({IMAGES: batch})[LOGITS]
            _check(runner.name, logits, labels)
            correct = top_classes(logits, 5) == labels[:, None]
            hits += correct[:, 0].sum(), correct.sum()
            images += len(labels)
    if images == 0:
        raise ImageError(runner.name, "no labelled image", "at least one")
    return Accuracy(top1=float(hits[0] / images), top5=float(hits[1] / images), images=images)


def _check(name: str, logits: Array, labels: Array) -> None:
    images, classes = logits.shape
    if labels.shape != (images,) or labels.dtype.kind not in "iu":
        raise ImageError(f"{name}: labels", f"{labels.dtype}{list(labels.shape)}", f"{images} integers")
    if images and not (labels.min() >= 0 and labels.max() < classes):
        raise ImageError(f"{name}: labels", f"{labels.min()} to {labels.max()}", f"0 to {classes - 1}")
    if not np.isfinite(logits).all():
        raise UserError(f"{name}: {LOGITS}", "NaN or infinite values", "finite ones")
