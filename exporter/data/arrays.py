"""Images in memory, as an array or the batches of a loader, in place of a folder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from exporter.data.images import ImageFile, ImageFolder
from exporter.errors import ImageError

__all__ = ["ArrayImage", "images_in"]

Array = np.ndarray[Any, Any]

HERE = Path("images")
# Where the datasets of Hugging Face's library and of torchvision's transforms keep the images of a batch.
KEYS = ("pixel_values", "images", "image")


@dataclass(frozen=True, eq=False)
class ArrayImage(ImageFile):
    """An image at hand, [3, height, width]: uint8 pixels, or float32 as normalised for the model."""

    pixels: Array = field(kw_only=True, repr=False)

    def read(self) -> bytes:
        """Return the bytes of the array."""
        return self.pixels.tobytes()


def images_in(images: Any, input_size: Sequence[int], most: int | None = None) -> ImageFolder:
    """Return the images of an array or a loader in the place of a folder's.

    Args:
        images: [n, 3, height, width] uint8 pixels, or floats as normalised for the model: a NumPy array or a torch
            tensor, or an iterable of such batches, each alone, first in a tuple, or in a mapping.
        input_size: The model's (3, height, width).
        most: Images to take from a loader; all of them for None. Of an array, the caller draws.

    Raises:
        ImageError: There is no image, a shape or type is another, or a value is not finite.
    """
    whole = _is_array(images)
    batches = [images] if whole else images
    found = (image for batch in batches for image in _checked(_array_of(batch), input_size))
    files = tuple(
        ArrayImage(HERE / f"{index}", None, pixels=image)
        for index, image in enumerate(found if whole else islice(found, most))
    )
    if not files:
        raise ImageError("images", "none", "at least one")
    return ImageFolder(HERE, files)


def _is_array(images: Any) -> bool:
    return hasattr(images, "shape") and hasattr(images, "dtype")


def _array_of(batch: Any) -> Array:
    """Return the images of a batch."""
    if isinstance(batch, Mapping):
        batch = next((batch[key] for key in KEYS if key in batch), None)
    elif isinstance(batch, Iterable) and not _is_array(batch):
        batch = next(iter(batch), None)
    if not _is_array(batch):
        got = f"a batch with {type(batch).__name__} in the place of images"
        raise ImageError("images", got, f"an array alone, first in a tuple, or under {', '.join(KEYS)}")
    # A tensor of torch may need its gradient, or lie on a GPU.
    return np.asarray(batch.detach().cpu() if hasattr(batch, "detach") else batch)


def _checked(images: Array, input_size: Sequence[int]) -> Iterator[Array]:
    expected = f"[n, {', '.join(map(str, input_size))}], the model's input"
    if images.ndim != 4 or images.shape[1:] != tuple(input_size):
        raise ImageError("images", f"shape {list(images.shape)}", expected)
    if images.dtype != np.uint8:
        if not np.issubdtype(images.dtype, np.floating):
            raise ImageError(
                "images", f"{images.dtype}", "uint8 pixels, or floats as normalised for the model"
            )
        images = images.astype(np.float32)
        if not np.isfinite(images).all():
            raise ImageError("images", "values that are not finite", "floats as normalised for the model")
    yield from images
