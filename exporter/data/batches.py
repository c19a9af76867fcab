"""Load image files as batches for a lowered model."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from exporter.data.images import ImageFile
from exporter.data.pixels import LoadedImage, normalise, stream
from exporter.errors import ImageError
from exporter.records import Preprocessing

__all__ = ["batches", "first_images"]

Array = np.ndarray[Any, Any]


def batches(
    files: Sequence[ImageFile], preprocessing: Preprocessing, input_kind: str, size: int
) -> Iterator[tuple[Array, Array]]:
    """Yield images [n, 3, H, W] and their classes [n] int64, -1 where a class is unknown; n is at most `size`.

    Args:
        files: In this order; images that cannot be read are left out, with a warning.
        preprocessing: The model's own.
        input_kind: "uint8" for pixels, "float32" for normalised images.
        size: Images per batch.
    """
    loaded = (item for item in stream(files, preprocessing) if isinstance(item, LoadedImage))
    while group := list(islice(loaded, size)):
        pixels = np.stack([item.pixels for item in group])
        images = pixels if input_kind == "uint8" else normalise(pixels, preprocessing)
        labels = [-1 if item.file.label is None else item.file.label for item in group]
        yield images, np.array(labels, dtype=np.int64)


def first_images(
    files: Sequence[ImageFile], preprocessing: Preprocessing, input_kind: str, count: int
) -> Array:
    """Return the first `count` images that can be read, [n, 3, H, W].

    Raises:
        ImageError: No image can be read.
    """
    for images, _ in batches(files, preprocessing, input_kind, count):
        return images
    raise ImageError("images", "none that can be read", "at least one")
