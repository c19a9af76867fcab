"""Compare two models without classes by their embeddings: the angle between them, and the nearest neighbour."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.evaluation.accuracy import Batches, answer_each
from exporter.evaluation.intervals import Interval, wilson
from exporter.runtimes.base import Runner

__all__ = ["Agreement", "Embeddings", "agreement_of", "embed_each"]

# Rows of similarities that are in memory at a time.
ROWS = 1024

Array = np.ndarray[Any, Any]


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


def embed_each(
    runners: Sequence[Runner], batches: Batches, outputs: Sequence[str], *, size: int = 0
) -> tuple[Embeddings, ...]:
    """Run every batch once on each of the models, and return the embeddings of all images.

    Args:
        runners: Each takes `images`.
        batches: The images of each batch as each of the runners takes them, and their labels, which are not read.
        outputs: The name of each model's embedding.
        size: Images per run, see `answer_each`.

    Raises:
        UserError: A model lacks the output, or gives values that are not finite.
    """
    rows, labels = answer_each(runners, batches, outputs, lambda _, values, __: values, size=size)
    return tuple(Embeddings(each.astype(np.float32), labels) for each in rows)


def agreement_of(first: Embeddings, second: Embeddings) -> Agreement:
    """Compare the embeddings of two models, usually the dense and the pruned one; equal ones go to the first image.

    Args:
        first: Of at least one image.
        second: Of the same images, in the same order, with as many channels.
    """
    own, other = _directions(first.values), _directions(second.values)
    cosine, images = (own * other).sum(axis=1), len(own)
    same = sum(int((a == b).sum()) for a, b in zip(_nearest(own, own), _nearest(other, own), strict=True))
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
