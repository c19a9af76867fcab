"""Decode an image file, or take an image in memory, as the pixels that a model was trained on; and normalise them.

Resizing and cropping are bit for bit the test transforms of timm and torchvision, and Hugging Face's processors
that use Pillow.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from exporter.core.base.errors import ImageError, reason_of
from exporter.core.base.records import Preprocessing
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import CropMode, CropRounding
from exporter.data.images import ImageFile, ImageFolder

Size = tuple[int, int]  # height and width


def to_input_size(image: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    """Resize an RGB image and crop its centre; missing pixels get the mean colour under "border", else black."""
    _, height, width = preprocessing.input_size
    before, mode = (image.height, image.width), preprocessing.crop_mode
    after = before
    if mode != CropMode.NONE:
        after = _resized(before, preprocessing.scaled, mode)
    if after != before:
        image = image.resize(
            after[::-1], Image.Resampling[preprocessing.interpolation.name]
        )
    if mode == CropMode.BORDER:
        red, green, blue = (round(255 * value) for value in preprocessing.mean)
        image = _padded(image, (height, width), (red, green, blue))
    return _cropped(image, (height, width), preprocessing.crop_rounding)


def _resized(size: Size, target: Size, mode: CropMode) -> Size:
    """Return the size to which an image is resized before it is cropped to `target` or less."""
    if mode == CropMode.SQUASH:
        return target
    height, width = size
    if mode == CropMode.CENTER and target[0] == target[1]:
        # torchvision truncates here; timm rounds below.
        longer = int(target[0] * max(size) / min(size))
        return (longer, target[1]) if height > width else (target[0], longer)
    ratios = height / target[0], width / target[1]
    ratio = max(ratios) if mode == CropMode.BORDER else min(ratios)
    # Without this limit, a strip would be resized to nothing.
    return max(1, round(height / ratio)), max(1, round(width / ratio))


def _padded(image: Image.Image, size: Size, fill: tuple[int, int, int]) -> Image.Image:
    rows = max(size[0] - image.height, 0)
    columns = max(size[1] - image.width, 0)
    if not rows and not columns:
        return image
    border = columns // 2, rows // 2, (columns + 1) // 2, (rows + 1) // 2
    return ImageOps.expand(image, border, fill)


def _cropped(image: Image.Image, size: Size, rounding: CropRounding) -> Image.Image:
    height, width = size
    to_pixel = floor if rounding == CropRounding.DOWN else round
    top = to_pixel((image.height - height) / 2)
    left = to_pixel((image.width - width) / 2)
    # Pillow gives black for pixels outside the image.
    return image.crop((left, top, left + width, top + height))


HERE = Path("images")
# Where the datasets of Hugging Face's library and of torchvision's transforms keep the images of a batch.
KEYS = ("pixel_values", "images", "image")
# The share of the range from black to white by which resized floats may lie beyond it, and the least they fill.
_OVERSHOOT, _NARROW = 0.25, 0.6
# The images of which values are counted, and the most values that pixels of 8 bits have, with a border's.
_COUNTED, _LEVELS = 4, 257
# How far such values may miss grey levels, for means of three digits and in bfloat16, and the share that hits them.
_MISS, _BF16, _HITS = 0.2, 2.0**-9, 0.8


def images_in(
    images: Any, input_size: Sequence[int], most: int | None = None
) -> ImageFolder:
    """Return the images of an array or a loader in the place of a folder's.

    Args:
        images: [n, 3, height, width] uint8 pixels, or floats as normalised for the model: a NumPy array or a torch
            tensor, or an iterable of such batches, each alone, first in a tuple, or in a mapping.
        input_size: The model's (3, height, width).
        most: Images to take from a loader; all of them for None. Of an array, the caller draws.
    """
    if _is_array(images):
        images, most = [images], None
    elif not isinstance(images, Iterable):
        got = f"a {type(images).__name__}"
        raise ImageError("images", got, "a folder, an array, or a loader of arrays")
    arrays = (
        image for batch in images for image in _checked(_array_of(batch), input_size)
    )
    files = tuple(
        ImageFile(HERE / f"{index}", None, pixels=image)
        for index, image in enumerate(islice(arrays, most))
    )
    if not files:
        raise ImageError("images", "none", "at least one")
    return ImageFolder(HERE, files)


def check_normalised(
    images: ImageFolder, preprocessing: Preprocessing, *, noise: bool = True
) -> None:
    """Raise ImageError where arrays are not pixels, nor floats as the model's mean and deviation make of them.

    What may be `noise`, or images of little contrast, is named in one line where it is allowed.
    """
    arrays = [file.pixels for file in images.files if file.pixels is not None]
    pixels = [array for array in arrays if array.dtype == np.uint8]
    if max((int(array.max()) for array in pixels), default=0) == 1:
        hint = "multiply by 255"
        raise ImageError("images", "uint8 of 0 and 1", "pixels from 0 to 255", hint)
    floats = [array for array in arrays if array.dtype == np.float32]
    got, is_certain = _fault(floats, preprocessing) if floats else ("", False)
    if not got:
        return
    mean, std = np.array(preprocessing.mean), np.array(preprocessing.std)
    least, most = min(-mean / std), max((1 - mean) / std)
    expected = f"floats as normalised for the model, from {least:.3g} to {most:.3g}"
    hint = "apply its mean and deviation, or give uint8 pixels"
    error = ImageError("images", got, f"{expected}, some below 0", hint)
    if is_certain or not noise:
        raise error
    logger.warning("%s", error)


def _fault(floats: Sequence[Array], preprocessing: Preprocessing) -> tuple[str, bool]:
    """Return why floats are not normalised as for the model, "" if they may be; and whether it is certain."""
    mean, std = np.array(preprocessing.mean), np.array(preprocessing.std)
    lowest = np.min([array.min((1, 2)) for array in floats], 0)
    highest = np.max([array.max((1, 2)) for array in floats], 0)
    words = f"floats from {lowest.min():.3g} to {highest.max():.3g}"
    channels = np.stack(floats[:_COUNTED], 1).reshape(3, -1)
    are_pixels = [*map(_are_pixels, channels, mean, std)]
    if False in are_pixels:
        return f"{words}, pixels with another mean or deviation", True
    darkest, brightest = lowest * std + mean, highest * std + mean
    is_within = min(darkest) >= -_OVERSHOOT and max(brightest) <= 1 + _OVERSHOOT
    is_positive = bool(min(lowest) >= 0)
    if not is_within or (is_positive and mean.any() and max(highest) <= 1):
        return words, is_positive
    if None not in are_pixels or max(brightest - darkest) > _NARROW:
        return "", False
    return f"{words}, less than {_NARROW:.0%} of black to white", False


def _are_pixels(values: Array, mean: float, std: float) -> bool | None:
    """Whether values of a channel are those of 8-bit pixels; None for values that need not be of 8 bits."""
    distinct = np.unique(values)
    if not 1 < len(distinct) <= _LEVELS or len(values) < 4 * _LEVELS:
        return None
    exact = 255 * (distinct * std + mean)
    levels = exact.round().clip(0, 255)
    is_hit = abs(exact - levels) < _MISS + 255 * std * _BF16 * abs(distinct)
    return len(np.unique(levels[is_hit])) >= _HITS * len(distinct)


def _is_array(images: Any) -> bool:
    return hasattr(images, "shape") and hasattr(images, "dtype")


def _array_of(batch: Any) -> Array:
    if isinstance(batch, Mapping):
        batch = next((batch[key] for key in KEYS if key in batch), None)
    elif isinstance(batch, Iterable) and not _is_array(batch):
        batch = next(iter(batch), None)
    if not _is_array(batch):
        got = f"a batch with {type(batch).__name__} in the place of images"
        raise ImageError(
            "images",
            got,
            f"an array alone, first in a tuple, or under {', '.join(KEYS)}",
        )
    try:
        if hasattr(batch, "detach"):
            # A tensor of torch may need its gradient, lie on a GPU, or have a type that NumPy lacks.
            batch = batch.detach().cpu()
            batch = batch.float() if batch.is_floating_point() else batch
        if np.ma.is_masked(batch):
            raise ImageError("images", "a mask over pixels", "a value for each of them")
        return np.asarray(batch)
    # sparse, or without values
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise ImageError("images", reason_of(error), "an array of values") from None


def _checked(images: Array, input_size: Sequence[int]) -> Iterator[Array]:
    expected = f"[n, {', '.join(map(str, input_size))}], the model's input"
    if images.ndim != 4 or images.shape[1:] != tuple(input_size):
        raise ImageError("images", f"shape {list(images.shape)}", expected)
    if images.dtype != np.uint8:
        if not np.issubdtype(images.dtype, np.floating):
            raise ImageError(
                "images",
                f"{images.dtype}",
                "uint8 pixels, or floats as normalised for the model",
            )
        images = images.astype(np.float32)
        if not np.isfinite(images).all():
            raise ImageError(
                "images",
                "values that are not finite",
                "floats as normalised for the model",
            )
    yield from images


MAX_PIXELS = (
    89_478_485  # Pillow's own limit against small files that unpack to gigabytes
)
MAX_ASPECT = (
    100  # scaling a strip's short side up to the input size scales its long side too
)

# Tags of TIFF; the least and the largest value are in the type of the samples, or else unsigned.
BITS_PER_SAMPLE, PHOTOMETRIC, SAMPLE_FORMAT = 258, 262, 339
LEAST, LARGEST = (340, 280), (341, 281)
WHITE_IS_ZERO, SIGNED = 0, 2
# Formats of which Pillow decodes all deeper grey to 16 bits.
ALWAYS_16_BITS = ("PNG", "PPM", "JPEG2000")

logger = logging.getLogger(__name__)

# Logged in the same words for every image, so that a command says it once.
UNTOLD_WHITE = (
    "grey images of Pillow's mode %s do not say which value is white: the largest value of each one tells; "
    "save them with 8 or 16 bits"
)
DARK = "images that use less than a quarter of their depth stay dark: scale them where their own white is darker"


@dataclass(frozen=True)
class LoadedImage:
    """An image's pixels, uint8 [3, height, width], cropped to the model's input size; float32 if normalised before.

    `views` has one such array for each preprocessing, `pixels` is the first. There is none of an image that could
    not be used, for a `reason` in one line.
    """

    file: ImageFile
    views: tuple[Array, ...] = ()
    reason: str = ""

    @property
    def pixels(self) -> Array:
        """The pixels for the first preprocessing, often the only one."""
        return self.views[0]


def stream(
    files: Iterable[ImageFile],
    *preprocessings: Preprocessing,
    ahead: int = 4,
    workers: int = 1,
) -> Generator[LoadedImage]:
    """Decode images in order, `ahead` of the caller in threads; skipped ones are logged as warnings.

    An image is decoded once for all preprocessings. No more than `ahead` + 1 images are in memory.
    """
    waiting: deque[Future[LoadedImage]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
        try:
            for file in files:
                waiting.append(pool.submit(load_image, file, *preprocessings))
                if len(waiting) > ahead:
                    yield _logged(waiting.popleft().result())
            while waiting:
                yield _logged(waiting.popleft().result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def load_image(file: ImageFile, *preprocessings: Preprocessing) -> LoadedImage:
    """Decode one image and bring it to the input sizes; any error becomes a reason to skip it.

    An image at hand is taken as it is.
    """
    if file.pixels is not None:
        return LoadedImage(file, (file.pixels,) * len(preprocessings))
    try:
        image = read_rgb(file)
    except ImageError as error:
        return LoadedImage(file, reason=error.got)
    views = tuple(to_pixels(to_input_size(image, step)) for step in preprocessings)
    return LoadedImage(file, views)


def read_rgb(file: ImageFile) -> Image.Image:
    """Decode an image."""
    try:
        with Image.open(BytesIO(file.read())) as image:
            reason = _absurd(image.width, image.height)
            if not reason:
                image.load()
                rgb = to_rgb(image)
                if 0 < np.asarray(rgb).max() < 64:
                    logger.warning(DARK)
                return rgb
    except UnidentifiedImageError:  # its message has an address in memory
        reason = "cannot be decoded: no image format that Pillow knows"
    except Exception as error:  # noqa: BLE001, RUF100  (decoders of broken files raise nearly anything)
        reason = f"cannot be decoded: {reason_of(error)}"
    raise ImageError(file.path, reason, "an image that Pillow reads")


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert any mode to 8-bit RGB as training loaders do: alpha is dropped, not blended, and EXIF is not read.

    Pillow itself brings colours to 8 bits. Grey of other depths is scaled here, where Pillow would clip it. Where a
    TIFF says which values are black and white, they are; else the largest value of 9 to 16 bits is white. Integers
    of 32 bits are taken as they are up to 255, and as 16 bits up to 65535. Floats from 0 to 1 are multiplied by
    255; whole ones up to 255 are taken as they are.

    Raises:
        ValueError: Values are not from black to white, or the file says of them what is not followed.
    """
    depth = _depth(image)
    ends = _ends(image, depth)
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        image = Image.fromarray(_grey(image, *ends))
    elif depth > 8 and ends != (0, 2**depth - 1):
        raise ValueError("colours whose white is not the largest value of their depth")
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def to_pixels(image: Image.Image) -> Array:
    """Return an RGB image as uint8 [3, height, width]."""
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _grey(image: Image.Image, black: float, white: float) -> Array:
    """Return grey values of more than 8 bits as uint8 [height, width]; 0 for white where no file tells it."""
    values = np.asarray(image).astype(np.float64)
    least = float(values.min())
    most = float(values.max())
    if not white:
        logger.warning(UNTOLD_WHITE, image.mode)
        if image.mode == "F":
            white = 255 if most > 1 and (values == np.rint(values)).all() else 1
        else:
            white = 255 if most <= 255 else 65535
    # This also refuses values that are no numbers.
    if not black <= least <= most <= white > black:
        got = f"grey values from {least:g} to {most:g}"
        raise ValueError(f"{got} where black is {black:g} and white is {white:g}")
    shares = (values - black) / (white - black)
    if _said(image, PHOTOMETRIC) == WHITE_IS_ZERO:
        shares = 1 - shares
    return np.rint(shares * 255).astype(np.uint8)


def _ends(image: Image.Image, depth: int) -> tuple[float, float]:
    """Return the least and the largest value, one of which is white; (0, 0) where nothing says them."""
    largest = _said(image, *LARGEST)
    if depth and largest is None and _said(image, SAMPLE_FORMAT) == SIGNED:
        raise ValueError("signed values, and no word on which of them is white")
    return _said(image, *LEAST) or 0, 2**depth - 1 if largest is None else largest


def _depth(image: Image.Image) -> int:
    """Return the bits of a value if the file says that they are up to 16, else 0."""
    bits = _said(image, BITS_PER_SAMPLE) or 32
    if bits <= 16:
        return int(bits)
    is_deep = image.mode == "I" and image.format in ALWAYS_16_BITS
    return 16 if is_deep or image.mode.startswith("I;") else 0


def _said(image: Image.Image, *tags: int) -> float | None:
    """Return the value of the first of these tags that a TIFF has."""
    values = getattr(image, "tag_v2", {})
    for tag in tags:
        if tag in values:
            return float(np.ravel(values[tag])[0])
    return None


def _absurd(width: int, height: int) -> str:
    if width * height > MAX_PIXELS:
        return f"{width}x{height} pixels, more than {MAX_PIXELS} in all"
    if max(width, height) > MAX_ASPECT * min(width, height):
        return f"{width}x{height} pixels, one side over {MAX_ASPECT} times the other"
    return ""


def _logged(item: LoadedImage) -> LoadedImage:
    if item.reason:
        logger.warning("skipped %s: %s", item.file.path, item.reason)
    return item
