"""Run several models over labelled images in one pass, and measure their top-1 and top-5 accuracy."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from exporter.core.base.errors import UserError
from exporter.core.base.intervals import Interval, wilson
from exporter.core.base.tensor_names import IMAGES, LOGITS, Array
from exporter.core.verify.differences import top_classes
from exporter.core.verify.runner import Runner
from exporter.data.class_map import MAP_HINT
from exporter.data.images import UNKNOWN

# With fewer images, nothing tells a model from guesses.
TO_TELL = 100

logger = logging.getLogger(__name__)

# The images as each of the models takes them, and one integer class per image.
Batches: TypeAlias = Iterable[tuple[Sequence[Array], Array]]


def answer_each(
    runners: Sequence[Runner],
    batches: Batches,
    outputs: Sequence[str],
    row_of: Callable[[Array], Array],
    *,
    size: int = 0,
) -> tuple[tuple[Array, ...], Array]:
    """Run every batch once on each of the models, in turns; return the rows of each model, and the labels.

    Args:
        runners: Each takes `images`.
        batches: The images of each batch as each of the runners takes them, and their labels.
        outputs: The output of each model that is read.
        row_of: Reduces the values of a batch to a row per image.
        size: Images per run, to which a smaller batch is filled up, for engines, which take only the sizes that
            they were built for. 0: it runs as it is.

    Raises:
        UserError: A model does not have its output, or gives values that are not finite.
    """
    # An empty first part, for a job without images.
    none = np.empty(0, np.int64)
    rows: list[list[Array]] = [[] for _ in runners]
    true: list[Array] = [none]
    with ExitStack() as active:
        for runner, output in zip(runners, outputs, strict=True):
            _check_output(active.enter_context(runner), output)
        for feeds, labels in batches:
            for runner, output, images, parts in zip(
                runners, outputs, feeds, rows, strict=True
            ):
                parts.append(row_of(_values(runner, output, images, size)))
            true.append(labels)
    joined = tuple(np.concatenate(parts or [none[:, None]]) for parts in rows)
    return joined, np.concatenate(true)


def _check_output(runner: Runner, output: str) -> None:
    returned = [info.name for info in runner.outputs]
    if output not in returned:
        got = f"the outputs {', '.join(returned)}"
        raise UserError(runner.name, got, f"{output}, to measure by")


def _values(runner: Runner, output: str, images: Array, size: int) -> Array:
    """Run a model on a batch, filled up to `size`, and return an output of its images."""
    values = runner.run({IMAGES: _filled(images, size)})[output][: len(images)]
    if not np.isfinite(values).all():
        raise UserError(
            f"{runner.name}: {output}", "NaN or infinite values", "finite ones"
        )
    return values


def _filled(images: Array, size: int) -> Array:
    missing = size - len(images)
    if missing <= 0:
        return images
    return np.concatenate([images, np.repeat(images[-1:], missing, axis=0)])


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
            top1_hits=int(hits[:, 0].sum()),
            top5_hits=int(hits.sum()),
            images=len(self.labels),
        )


def warn_of_guesses(accuracy: Accuracy, classes: int, place: Path) -> None:
    """Log one line where the unpruned model is not shown to be better than guesses: it tells no loss.

    `place` is where the images are.
    """
    is_better = accuracy.interval[0] > 1 / classes
    if is_better or classes < 2 or accuracy.images < TO_TELL:
        return
    logger.warning(
        "%s: the unpruned model is right on %.2f %% of %d images, as guesses among its %d classes would be: no "
        "loss can show. Is it trained, and are the folders its classes? (%s)",
        place,
        100 * accuracy.top1,
        accuracy.images,
        classes,
        MAP_HINT,
    )


def best_classes(logits: Array, classes: Array | None = None) -> Array:
    """Return the best classes by logits, [images, up to 5], the best first; of `classes` alone where given."""
    if classes is None:
        return top_classes(logits, 5)
    return np.asarray(classes[top_classes(logits[:, classes], 5)])


def predict_each(
    runners: Sequence[Runner],
    batches: Batches,
    *,
    classes: Array | None = None,
    size: int = 0,
) -> tuple[Predictions, ...]:
    """Run every batch once on each of the models, in turns, and return the best classes of each image.

    Runners return `logits`, of which only those of `classes`, ascending, are compared, if given; labels may be
    UNKNOWN. The other arguments and errors are those of `answer_each`.
    """
    outputs, best_of = [LOGITS] * len(runners), partial(best_classes, classes=classes)
    best, true = answer_each(runners, batches, outputs, best_of, size=size)
    return tuple(Predictions(classes_of, true) for classes_of in best)
