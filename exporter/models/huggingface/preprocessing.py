"""The preprocessing of the library's image processor under timm's keys: proven on images, or refused by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from exporter.data.pixels import normalise, to_input_size, to_pixels
from exporter.errors import ModelError
from exporter.models.huggingface.kinds import Kind
from exporter.models.spec import crop_share, preprocessing_from
from exporter.records import Preprocessing
from exporter.vocabulary import CropMode, CropRounding

Size = tuple[int, int]  # height and width

# By Pillow's numbers.
RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
# Of those settings that begin so; the others change no pixel, or the proof refuses the processor.
STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb")

MOST_PIXELS = 10_000  # of a side
ALL_GIVEN = "or give all of it in a recipe: interpolation, mean, std, crop_pct and crop_mode of preprocess"
# Of 256, the mean difference of pixels that is allowed: torchvision rounds to 8 bits otherwise than Pillow, by a
# quarter of a level in the mean. Noise that is cropped one pixel aside differs by 80.
GREY_LEVELS = 0.5


def usual_preprocessing(kind: Kind) -> dict[str, Any]:
    """Return the preprocessing of a kind of models where no processor comes with the weights."""
    halves = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    plain = {"interpolation": "bilinear", "crop_mode": "squash", "crop_pct": 1.0}
    return {**halves, **plain, **kind.preprocessing}


def preprocessing_of(processor: Any, source: str) -> dict[str, Any]:
    """Return the values of an image processor, with the `input_size` that it makes of every image.

    Raises:
        ModelError: Its pixels are not ours, or images keep several sizes. `source` is named.
    """
    mode, resized, size = _geometry(processor, source)
    is_squashed = mode == CropMode.SQUASH and resized == size
    values = {
        **_scale(processor),
        "interpolation": RESAMPLING[int(processor.resample)],
        "crop_mode": str(mode),
        "crop_pct": _share(processor, size, resized, source),
        "crop_rounding": str(CropRounding.EVEN if is_squashed else CropRounding.DOWN),
        "input_size": (3, *size),
    }
    try:
        preprocessing = preprocessing_from(values, size)
    except ModelError as error:
        raise ModelError(source, error.got, error.expected, ALL_GIVEN) from None
    _prove(processor, preprocessing, source)
    return values


def _geometry(processor: Any, source: str) -> tuple[CropMode, Size | None, Size]:
    """Return how an image is fitted, the size to which it is resized, if it is, and the size of the input.

    Under "center", the first of the two sizes is a square of the shorter side.
    """
    crop = _box(processor, "crop_size", source) if processor.do_center_crop else None
    if not processor.do_resize:
        if crop is None:
            expected = "a crop, so that all images get one size"
            raise ModelError(source, "do_resize=False", expected, ALL_GIVEN)
        return CropMode.NONE, None, crop
    sides = _sides(processor, "size", source)
    if sides.keys() == {"height", "width"}:
        resized = sides["height"], sides["width"]
        return CropMode.SQUASH, resized, crop or resized
    if sides.keys() != {"shortest_edge"} or crop is None:
        expected = (
            "height and width, or shortest_edge with a crop, so that all images get one size"
        )
        raise ModelError(source, f"size={sides}", expected, ALL_GIVEN)
    edge = sides["shortest_edge"]
    return CropMode.CENTER, (edge, edge), crop


def _share(processor: Any, size: Size, resized: Size | None, source: str) -> float:
    if resized is None:
        return 1.0
    try:
        return crop_share(size, resized)
    except ValueError as error:
        got = f"size={dict(processor.size)} crop_size={dict(processor.crop_size)}: {error}"
        expected = "a crop within the size, of the same share of both sides"
        raise ModelError(source, got, expected) from None


def _sides(processor: Any, name: str, source: str) -> dict[str, int]:
    """Return the sides of a size, by their names in the library."""
    size = getattr(processor, name)
    sides = {side: pixels for side, pixels in dict(size or {}).items() if pixels is not None}
    if not sides or not all(1 <= pixels <= MOST_PIXELS for pixels in sides.values()):
        expected = f"sides of 1 to {MOST_PIXELS} pixels"
        raise ModelError(source, f"{name}={sides}", expected, ALL_GIVEN)
    return sides


def _box(processor: Any, name: str, source: str) -> Size:
    sides = _sides(processor, name, source)
    if sides.keys() != {"height", "width"}:
        raise ModelError(source, f"{name}={sides}", "height and width", ALL_GIVEN)
    return sides["height"], sides["width"]


def _scale(processor: Any) -> Mapping[str, tuple[float, ...]]:
    """Return mean and deviation of pixels on a scale from 0 to 1, whatever the processor's scale is."""
    white = 255 * (processor.rescale_factor if processor.do_rescale else 1.0)
    mean: Any = processor.image_mean if processor.do_normalize else 0.0
    std: Any = processor.image_std if processor.do_normalize else 1.0
    # One number stands for all channels.
    return {
        "mean": tuple(np.broadcast_to(np.divide(mean, white), 3).tolist()),
        "std": tuple(np.broadcast_to(np.divide(std, white), 3).tolist()),
    }


def _prove(processor: Any, preprocessing: Preprocessing, source: str) -> None:
    """Compare our pixels with the processor's on an upright and an oblong image of noise, of odd sizes."""
    _, height, width = preprocessing.input_size
    level = 1 / 255 / np.array(preprocessing.std, np.float32).reshape(3, 1, 1)
    for shape in ((height + 13, 2 * width + 7), (2 * height + 7, width + 13)):
        noise = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
        image = Image.fromarray(noise)
        pixels = normalise(to_pixels(to_input_size(image, preprocessing)), preprocessing)
        batch = np.asarray(processor(image, return_tensors="np")["pixel_values"])
        if batch.shape != (1, *pixels.shape):
            difference = f"of shape {list(batch.shape)} for an image, not {[1, *pixels.shape]}"
        elif not float((np.abs(batch[0] - pixels) / level).mean()) <= GREY_LEVELS:  # or NaN
            difference = "that differ from ours"
        else:
            continue
        got = f"pixels {difference}, by {_described(processor)}"
        raise ModelError(source, got, "a processor that resizes, crops and scales", ALL_GIVEN)


def _described(processor: Any) -> str:
    """Return the class of a processor and the steps that no other one of ours has."""
    steps = [
        f"{name}={value}"
        for name, value in sorted(processor.to_dict().items())
        if name.startswith("do_") and value and name not in STEPS
    ]
    return f"{type(processor).__name__}{' with ' if steps else ''}{', '.join(steps)}"
