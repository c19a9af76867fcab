"""The preprocessing of the library's image processor under timm's keys: proven on images, or refused by name."""

from typing import Any

import numpy as np
from PIL import Image

from exporter.core.base.errors import ModelError
from exporter.core.base.records import normalise
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import CropMode, CropRounding
from exporter.core.vit.spec import crop_share, preprocessing_from
from exporter.data.pixels import Size, to_input_size, to_pixels
from exporter.models.huggingface.kinds import Kind

# Of those settings that begin so; the others change no pixel, or the proof refuses the processor.
STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb")

MOST_PIXELS = 4_096  # of a side
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
    images = _noise(processor, source)
    batches = [_pixels(processor, image) for image in images]
    shapes = {batch.shape[2:] for batch in batches if batch.shape[:2] == (1, 3)}
    if len(shapes) != 1 or batches[0].ndim != 4:
        got = " and ".join(str(list(batch.shape)) for batch in batches)
        raise _refused(processor, source, f"pixels of shape {got} for two images")
    height, width = shapes.pop()
    values = {
        **_geometry(processor, (height, width), source),
        **_scale(processor),
        "interpolation": Image.Resampling(processor.resample).name.lower(),
        "input_size": (3, height, width),
    }
    try:
        preprocessing = preprocessing_from(values, (height, width))
    except ModelError as error:
        raise ModelError(source, error.got, error.expected, ALL_GIVEN) from None
    if not processor.do_resize:
        # What fills up an image that is too small lies otherwise in each of the library's two backends.
        images.append(images[0].crop((0, 0, max(1, width - 3), max(1, height - 3))))
        batches.append(_pixels(processor, images[-1]))
    level = 1 / 255 / np.array(preprocessing.std, np.float32).reshape(3, 1, 1)
    for image, batch in zip(images, batches, strict=True):
        pixels = normalise(
            to_pixels(to_input_size(image, preprocessing)), preprocessing
        )
        levels = float((np.abs(batch[0] - pixels) / level).mean())
        if not levels <= GREY_LEVELS:  # nor NaN
            got = f"pixels of {image.height} × {image.width} that differ from ours by {levels:.3g} grey levels"
            raise _refused(processor, source, got)
    return values


def _pixels(processor: Any, image: Image.Image) -> Array:
    """Return what a processor makes of an image, as a batch."""
    return np.asarray(processor(image, return_tensors="np")["pixel_values"])


def _noise(processor: Any, source: str) -> list[Image.Image]:
    """Return an oblong and an upright image of odd sizes, larger than what the processor makes of them."""
    sizes = [dict(size or {}) for size in (processor.size, processor.crop_size)]
    side = max((pixels or 0 for size in sizes for pixels in size.values()), default=0)
    if not 1 <= side <= MOST_PIXELS:
        expected = f"sides of 1 to {MOST_PIXELS} pixels"
        raise ModelError(source, f"a size of {side} pixels", expected, ALL_GIVEN)
    pixels = np.random.default_rng(0).integers(
        0, 256, (side + 13, side * 5 // 4 + 58, 3), np.uint8
    )
    return [Image.fromarray(pixels), Image.fromarray(pixels.transpose(1, 0, 2))]


def _geometry(processor: Any, size: Size, source: str) -> dict[str, Any]:
    """Return how an image is fitted into the size that the processor makes of every image."""
    if not processor.do_resize:
        return _fitted(CropMode.NONE, 1.0)
    sides = {side: pixels for side, pixels in dict(processor.size).items() if pixels}
    if sides.keys() == {"height", "width"}:
        mode, resized = CropMode.SQUASH, (sides["height"], sides["width"])
    elif sides.keys() == {"shortest_edge"}:
        mode = CropMode.CENTER
        resized = (sides["shortest_edge"], sides["shortest_edge"])
    else:
        raise _refused(processor, source, f"size={sides}")
    try:
        return _fitted(mode, crop_share(size, resized))
    except ValueError as error:
        raise _refused(processor, source, f"size={sides}, {error},") from None


def _fitted(mode: CropMode, share: float) -> dict[str, Any]:
    is_whole = mode == CropMode.SQUASH and share == 1
    rounding = CropRounding.EVEN if is_whole else CropRounding.DOWN
    return {"crop_mode": str(mode), "crop_pct": share, "crop_rounding": str(rounding)}


def _scale(processor: Any) -> dict[str, tuple[float, ...]]:
    """Return mean and deviation of pixels on a scale from 0 to 1, whatever the processor's scale is."""
    white = 255 * (processor.rescale_factor if processor.do_rescale else 1.0)
    mean: Any = processor.image_mean if processor.do_normalize else 0.0
    std: Any = processor.image_std if processor.do_normalize else 1.0
    # One number stands for all channels.
    return {
        "mean": tuple(np.broadcast_to(np.divide(mean, white), 3).tolist()),
        "std": tuple(np.broadcast_to(np.divide(std, white), 3).tolist()),
    }


def _refused(processor: Any, source: str, got: str) -> ModelError:
    """Return the error that names a processor's class, and the steps that no other one of ours has."""
    steps = [
        f"{name}={value}"
        for name, value in sorted(processor.to_dict().items())
        if name.startswith("do_") and value and name not in STEPS
    ]
    by = f"{type(processor).__name__}{' with ' if steps else ''}{', '.join(steps)}"
    expected = "one size for all images: resized to height and width or by the shorter side, cropped, scaled"
    return ModelError(source, f"{got} by {by}", expected, ALL_GIVEN)
