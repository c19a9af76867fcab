"""From an image file to pixels as the model was trained to see them, and from pixels to the model's input."""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from timm.data import create_transform
from torch import Tensor

from exporter.data.images import ImageFile
from exporter.errors import ImageError
from exporter.records import Preprocessing

__all__ = ["LoadedImage", "SkippedImage", "load_image", "make_transform", "normalise", "stream", "to_rgb"]

MAX_PIXELS = 89_478_485  # Pillow's own limit: beyond it a small file may be a bomb that unpacks to gigabytes
MAX_ASPECT = 100  # a strip's short side is scaled up to the input size, and its long side with it

logger = logging.getLogger(__name__)

Transform = Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class LoadedImage:
    """An image file's pixels, uint8 [3, height, width], cropped to the model's input size."""

    file: ImageFile
    pixels: UInt8[Tensor, "3 height width"]


@dataclass(frozen=True)
class SkippedImage:
    """An image that could not be used, and why, in one line."""

    path: Path
    reason: str


def stream(
    files: Iterable[ImageFile], preprocessing: Preprocessing, *, ahead: int = 4, workers: int = 1
) -> Generator[LoadedImage | SkippedImage]:
    """Decode images in order, a few ahead of the caller in threads; skipped ones are logged as warnings.

    Raises:
        ImageError: The preprocessing is none that timm knows.
    """
    transform = make_transform(preprocessing)
    waiting: deque[Future[LoadedImage | SkippedImage]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
        try:
            for file in files:
                waiting.append(pool.submit(load_image, file, transform))
                if len(waiting) > ahead:
                    yield _logged(waiting.popleft().result())
            while waiting:
                yield _logged(waiting.popleft().result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def load_image(file: ImageFile, transform: Transform) -> LoadedImage | SkippedImage:
    """Decode and transform one image; whatever is wrong with it becomes a reason to skip it."""
    try:
        with Image.open(file.path) as image:
            reason = _absurd(image.width, image.height)
            if reason:
                return SkippedImage(file.path, reason)
            return LoadedImage(file, transform(to_rgb(image)))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return SkippedImage(file.path, _one_line(error))
    except Exception as error:  # noqa: BLE001, RUF100  (decoders of broken files raise nearly anything)
        return SkippedImage(file.path, f"cannot be decoded: {_one_line(error)}")


def make_transform(preprocessing: Preprocessing) -> Transform:
    """The transform that timm tests with, up to the uint8 pixels.

    Raises:
        ImageError: The preprocessing is none that timm knows.
    """
    try:
        transform: Transform = create_transform(
            preprocessing.input_size,
            is_training=False,
            interpolation=preprocessing.interpolation,
            mean=preprocessing.mean,
            std=preprocessing.std,
            crop_pct=preprocessing.crop_pct,
            crop_mode=preprocessing.crop_mode,
            normalize=False,
        )
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise ImageError("preprocessing", _one_line(error), "values that timm's transform takes") from None
    return transform


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode as 8-bit RGB, as the loaders do that models are trained with: alpha is dropped, not blended.

    16-bit grey is scaled to 8 bits; Pillow alone would clip it to white.
    """
    if image.mode.startswith("I"):
        grey = (np.asarray(image).astype(np.int64) + 128) // 257
        image = Image.fromarray(grey.clip(0, 255).astype(np.uint8))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def normalise(
    pixels: UInt8[Tensor, "*batch 3 height width"], preprocessing: Preprocessing
) -> Float[Tensor, "*batch 3 height width"]:
    """uint8 pixels to the model's float32 input, bit for bit as timm's ToTensor and Normalize."""
    mean = torch.tensor(preprocessing.mean, device=pixels.device).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std, device=pixels.device).view(-1, 1, 1)
    return pixels.to(torch.float32).div_(255).sub_(mean).div_(std)


def _absurd(width: int, height: int) -> str:
    if width * height > MAX_PIXELS:
        return f"{width}x{height} pixels, more than {MAX_PIXELS} in all"
    if max(width, height) > MAX_ASPECT * min(width, height):
        return f"{width}x{height} pixels, one side over {MAX_ASPECT} times the other"
    return ""


def _logged(item: LoadedImage | SkippedImage) -> LoadedImage | SkippedImage:
    if isinstance(item, SkippedImage):
        logger.warning("skipped %s: %s", item.path, item.reason)
    return item


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
