"""Images as a caller has them: a folder, an array, or a loader."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, sample
from exporter.data.pixels import images_in
from exporter.data.source import images_at
from exporter.errors import ImageError
from exporter.files import PathLike
from exporter.records import ModelSpec
from exporter.vocabulary import InputKind

__all__ = ["AnyImages", "array_of", "folder_of"]

Array = np.ndarray[Any, Any]

# A folder; an array [n, 3, height, width]; or a loader of such batches (`exporter.data.pixels.images_in`).
AnyImages: TypeAlias = PathLike | Array | Iterable[Any]

# Images for a parity check or a benchmark; INT8's activation ranges settle within as many.
MOST = 64


def folder_of(images: AnyImages, spec: ModelSpec, most: int | None = None) -> ImageFolder:
    """Return the images for a model; of a loader the first `most`.

    Raises:
        ImageError: There are no images, or those at hand are not the model's input.
    """
    if isinstance(images, str | os.PathLike):
        return images_at(Path(images))
    return images_in(images, spec.preprocessing.input_size, most)


def array_of(images: AnyImages, spec: ModelSpec, input_kind: InputKind) -> Array:
    """Return up to MOST images as a lowered model takes them, [n, 3, height, width].

    Raises:
        ImageError: There are no images, or the model takes pixels and the images are normalised.
    """
    files = sample(folder_of(images, spec, MOST), MOST, 0).files
    found = first_images(files, spec.preprocessing, input_kind, MOST)
    if input_kind == InputKind.UINT8 and found.dtype != np.uint8:
        raise ImageError("images", f"{found.dtype}", "uint8 pixels, which the model takes")
    return found
