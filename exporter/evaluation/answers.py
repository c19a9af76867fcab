"""Run models over batches of images, and keep a row of numbers of each image."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import numpy as np

from exporter.errors import ImageError, UserError
from exporter.runtimes.base import Runner
from exporter.tensor_names import IMAGES

__all__ = ["Batches", "answer_each", "require_images"]

Array = np.ndarray[Any, Any]
# The images as each of the models takes them, and one integer class per image.
Batches: TypeAlias = Iterable[tuple[Sequence[Array], Array]]


def answer_each(
    runners: Sequence[Runner],
    batches: Batches,
    outputs: Sequence[str],
    row_of: Callable[[str, Array, Array], Array],
    *,
    size: int = 0,
) -> tuple[tuple[Array, ...], Array]:
    """Run every batch once on each of the models, in turns; return the rows of each model, and the labels.

    Args:
        runners: Each takes `images`.
        batches: The images of each batch as each of the runners takes them, and their labels.
        outputs: The output of each model that is read.
        row_of: Reduces a batch to a row per image, from the name of the model, the values and the labels.
        size: Images per run. A smaller batch is filled up with its last image, for engines take only the batch
            sizes that they were built for; 0: it runs as it is.

    Raises:
        ImageError: A batch has another number of labels than images.
        UserError: A model lacks the output, or gives values that are not finite.
    """
    rows: list[list[Array]] = [[] for _ in runners]
    true: list[Array] = []
    with ExitStack() as active:
        for runner, output in zip(runners, outputs, strict=True):
            _require(active.enter_context(runner), output)
        for feeds, labels in batches:
            for runner, output, images, found in zip(runners, outputs, feeds, rows, strict=True):
                values = runner.run({IMAGES: _filled(images, size)})[output][: len(images)]
                _check(f"{runner.name}: {output}", values)
                _check_labels(runner.name, len(images), labels)
                found.append(row_of(runner.name, values, labels))
            true.append(labels)
    none = np.empty(0, np.int64)
    return tuple(np.concatenate(found or [none[:, None]]) for found in rows), np.concatenate([none, *true])


def require_images(labels: Array, name: str) -> None:
    """Check that a model named `name` saw an image; there is a label for each.

    Raises:
        ImageError: There was none.
    """
    if not len(labels):
        raise ImageError(name, "no image", "at least one that can be read")


def _filled(images: Array, size: int) -> Array:
    missing = size - len(images)
    return np.concatenate([images, np.repeat(images[-1:], missing, axis=0)]) if missing > 0 else images


def _require(runner: Runner, output: str) -> None:
    returned = [info.name for info in runner.outputs]
    if output not in returned:
        raise UserError(runner.name, f"the outputs {', '.join(returned)}", f"{output}, to measure by")


def _check(name: str, values: Array) -> None:
    if not np.isfinite(values).all():
        raise UserError(name, "NaN or infinite values", "finite ones")


def _check_labels(name: str, images: int, labels: Array) -> None:
    if labels.shape != (images,) or labels.dtype.kind not in "iu":
        raise ImageError(f"{name}: labels", f"{labels.dtype}{list(labels.shape)}", f"{images} integers")
