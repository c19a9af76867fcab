"""Load image files as batches for lowered models."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from exporter.core.base.errors import ImageError
from exporter.core.base.records import ModelSpec, Preprocessing, normalise
from exporter.core.base.tensor_names import Array
from exporter.data.images import UNKNOWN, ImageFile, ImageFolder, sample
from exporter.data.pixels import LoadedImage, stream

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class View:
    """What a model takes of an image: its own preprocessing, and pixels ("uint8") or normalised images."""

    preprocessing: Preprocessing
    input_kind: str


@dataclass(frozen=True, eq=False)
class Batch:
    """The images of some files: for each view [n, 3, H, W], their classes [n] int64, UNKNOWN where it is.

    `skipped` says why images among them could not be read; a batch may have nothing else, and no views then.
    """

    views: tuple[Array, ...]
    labels: Array
    files: tuple[ImageFile, ...]
    skipped: Mapping[Path, str]


def batches_of(
    files: Iterable[ImageFile], views: Sequence[View], size: int, *, workers: int = 1
) -> Generator[Batch]:
    """Load every image once for all views, in this order, while the caller works on the batch before.

    Args:
        files: Iterated over once; images that cannot be read are left out, with a warning.
        views: What the models take.
        size: Files per batch; fewer images where some cannot be read, and in the last one.
        workers: Threads that decode. They are at most one batch ahead of the thread that stacks images.
    """
    return made_ahead(
        _batches(files, views, size, workers=workers, ahead=max(size, 2 * workers))
    )


def batches(
    files: Sequence[ImageFile], preprocessing: Preprocessing, input_kind: str, size: int
) -> Iterator[tuple[Array, Array]]:
    """Yield images [n, 3, H, W] and their classes [n] int64, -1 where a class is unknown; n is at most `size`.

    Images that cannot be read are left out, with a warning.
    """
    for batch in _batches(
        files, [View(preprocessing, input_kind)], size, workers=1, ahead=4
    ):
        if batch.files:
            yield batch.views[0], batch.labels


def first_images(
    files: Sequence[ImageFile],
    preprocessing: Preprocessing,
    input_kind: str,
    count: int,
) -> Array:
    """Return the first `count` images that can be read, [n, 3, H, W]."""
    parts: list[Array] = []
    for images, _ in batches(files, preprocessing, input_kind, count):
        parts.append(images)
        if sum(map(len, parts)) >= count:
            break
    if not parts:
        raise ImageError("images", "none that can be read", "at least one")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)[:count]


def draw_images(
    folder: ImageFolder,
    count: int,
    seed: int,
    preprocessing: Preprocessing,
    input_kind: str,
) -> Array:
    """Return at most `count` images of a folder, drawn by the seed, [n, 3, H, W]; those that can be read."""
    files = sample(folder, count, seed).files
    return first_images(files, preprocessing, input_kind, count)


def made_ahead(items: Generator[ItemT]) -> Generator[ItemT]:
    """Yield the items, which are not None; a thread makes the next one while the caller works on the one before."""
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        waiting = pool.submit(next, items, None)
        try:
            while (item := waiting.result()) is not None:
                waiting = pool.submit(next, items, None)
                yield item
        finally:
            pool.submit(items.close)


def _batches(
    files: Iterable[ImageFile],
    views: Sequence[View],
    size: int,
    *,
    workers: int,
    ahead: int,
) -> Generator[Batch]:
    preprocessings = list(dict.fromkeys(view.preprocessing for view in views))
    loaded = stream(files, *preprocessings, ahead=ahead, workers=workers)
    while group := list(islice(loaded, size)):
        images = [image for image in group if not image.reason]
        inputs = {
            view: _input(images, view, preprocessings.index(view.preprocessing))
            for view in views
            if images
        }
        labels = [
            UNKNOWN if image.file.label is None else image.file.label
            for image in images
        ]
        yield Batch(
            tuple(inputs[view] for view in views if images),
            labels=np.array(labels, dtype=np.int64),
            files=tuple(image.file for image in images),
            skipped={image.file.path: image.reason for image in group if image.reason},
        )


def _input(images: Sequence[LoadedImage], view: View, place: int) -> Array:
    pixels = np.stack([image.views[place] for image in images])
    if view.input_kind == "uint8":
        return pixels
    return normalise(pixels, view.preprocessing)


def noise(spec: ModelSpec, input_kind: str, batch: int, seed: int = 0) -> Array:
    """Return noise images as a lowered model takes them; the time of a static model does not depend on content."""
    generator = np.random.default_rng(seed)
    shape = (batch, *spec.preprocessing.input_size)
    if input_kind == "uint8":
        return generator.integers(0, 256, shape, dtype=np.uint8)
    return generator.standard_normal(shape, dtype=np.float32)
