"""The preprocessing of a folder's image processor, under timm's keys: carried exactly, or refused by name."""

import math
import re
from collections.abc import Mapping
from typing import Any

from timm.data import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    OPENAI_CLIP_MEAN,
    OPENAI_CLIP_STD,
)

from exporter.errors import ModelError
from exporter.models.spec import crop_share, preprocessing_from
from exporter.vocabulary import CropMode, CropRounding

Config = Mapping[str, Any]
Size = tuple[int, int]  # height and width

RESAMPLING = (
    "nearest",
    "lanczos",
    "bilinear",
    "bicubic",
    "box",
    "hamming",
)  # by Pillow's numbers

# What the library's classes do where a file does not say it; a test compares each with the class.
HALF = (0.5, 0.5, 0.5)
SQUARE = {"height": 224, "width": 224}
ALL = {
    "do_resize": True,
    "size": SQUARE,
    "default_to_square": True,
    "resample": 3,
    "do_center_crop": False,
    "crop_size": None,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": HALF,
    "image_std": HALF,
}
IMAGENET = {"image_mean": IMAGENET_DEFAULT_MEAN, "image_std": IMAGENET_DEFAULT_STD}
OPENAI = {"image_mean": OPENAI_CLIP_MEAN, "image_std": OPENAI_CLIP_STD}
EDGE = {"size": {"shortest_edge": 224}, "default_to_square": False}
CROP = {"do_center_crop": True, "crop_size": SQUARE}
CLIP = {**ALL, **OPENAI, **EDGE, **CROP}
PROCESSORS: Mapping[str, Config] = {
    "Beit": {**ALL, "crop_size": SQUARE},
    "Bit": CLIP,
    "Blip": {**ALL, **OPENAI, "size": {"height": 384, "width": 384}},
    "ChineseCLIP": CLIP,
    "CLIP": CLIP,
    "ConvNext": {**ALL, **EDGE, "size": {"shortest_edge": 384}, "crop_pct": 224 / 256},
    "DeiT": {**ALL, **CROP, "size": {"height": 256, "width": 256}},
    "DINOv3ViT": {**ALL, **IMAGENET, "resample": 2},
    "Levit": {**ALL, **IMAGENET, **EDGE, **CROP},
    "Llava": CLIP,
    "Siglip": {**ALL, "default_to_square": False},
    "ViT": {**ALL, "resample": 2},
}
NAME = re.compile(r"(\w+?)(?:ImageProcessor|FeatureExtractor)(?:Fast|Pil)?")
FLAGS = ("do_resize", "do_rescale", "do_normalize", "do_center_crop", "default_to_square")
# Keys that change no pixel of a model's input, which is RGB in any case.
WITHOUT_EFFECT = (
    *(
        "image_processor_type",
        "feature_extractor_type",
        "processor_class",
        "auto_map",
        "transformers_version",
    ),
    *(
        "_valid_processor_keys",
        "model_input_names",
        "image_seq_length",
        "image_seq_len",
        "num_image_tokens",
    ),
    *("do_convert_rgb", "do_reduce_labels", "reduce_labels", "pad_size", "use_fast"),
    *("data_format", "input_data_format", "return_tensors", "device", "disable_grouping"),
)

MOST_PIXELS = 10_000  # of a side
ALL_GIVEN = "or give all of it in a recipe: interpolation, mean, std, crop_pct and crop_mode of preprocess"
# ConvNeXt's processor crops below this size only, and LeViT's resizes to more than it is told.
CONVNEXT_WHOLE, LEVIT_MORE = 384, 256 / 224


def preprocessing_from_processor(
    told: Config, usual: Config, kind: str = "ViT", source: str = "image processor"
) -> dict[str, Any]:
    """Return the values of an image processor's config, with the `input_size` that it makes of every image.

    Args:
        told: The config; {} where there is none, and then there is no `input_size`.
        usual: The values of the kind of model without a processor.
        kind: The processor of such models, for a config that does not name its class.
        source: In errors.
    """
    if not told:
        own = {
            "mean": HALF,
            "std": HALF,
            "interpolation": "bilinear",
            "crop_mode": "squash",
            "crop_pct": 1.0,
        }
        return {**own, **usual}
    name, config = _checked(told, kind, source)
    mode, scaled, size = _geometry(config, name, source)
    whole = mode == CropMode.SQUASH and scaled == size
    found = {
        **_scale(config, source),
        "interpolation": _interpolation(config["resample"], source),
        "crop_mode": str(mode),
        "crop_pct": _share(config, size, scaled, source),
        "crop_rounding": str(CropRounding.EVEN if whole else CropRounding.DOWN),
        "input_size": (3, *size),
    }
    try:
        preprocessing_from(found, size)
    except ModelError as error:
        raise ModelError(source, error.got, error.expected, ALL_GIVEN) from None
    return found


def _checked(told: Config, kind: str, source: str) -> tuple[str, Config]:
    """Return the class of a config, and all that it says and that its class adds."""
    named = (
        told.get("image_processor_type")
        or told.get("feature_extractor_type")
        or f"{kind}ImageProcessor"
    )
    match = NAME.fullmatch(str(named))
    if match is None or match[1] not in PROCESSORS:
        raise ModelError(
            source, f"the processor {named!r}", f"one of {', '.join(PROCESSORS)}", ALL_GIVEN
        )
    defaults = PROCESSORS[match[1]]
    config = {**defaults, **{key: value for key, value in told.items() if value is not None}}
    for key, value in config.items():
        if value and key not in (*defaults, *WITHOUT_EFFECT):
            raise _refused(source, key, value, "a processor without it")
        if key in FLAGS and type(value) is not bool:
            raise _refused(source, key, value, "true or false")
    return match[1], config


def _geometry(config: Config, name: str, source: str) -> tuple[CropMode, Size | None, Size]:
    """Return how an image is fitted, the size to which it is resized, if it is, and the size of the input.

    Under "center", the first of the two sizes is a square of the shorter side.
    """
    crop = _box(config, "crop_size", source) if config["do_center_crop"] else None
    if not config["do_resize"]:
        if crop is None:
            raise _refused(
                source, "do_resize", False, "a crop, so that all images get one size"
            )
        return CropMode.NONE, None, crop
    told = _sides(config, "size", source, square=config["default_to_square"])
    if set(told) == {"height", "width"} and name != "ConvNext":
        scaled = told["height"], told["width"]
        return CropMode.SQUASH, scaled, crop or scaled
    if set(told) != {"shortest_edge"}:
        expected = (
            "shortest_edge"
            if name == "ConvNext"
            else "height and width, or shortest_edge alone"
        )
        raise _refused(source, "size", config["size"], expected)
    edge = told["shortest_edge"]
    if name == "ConvNext":
        if crop not in (None, (edge, edge)):
            raise _refused(
                source, "crop_size", config["crop_size"], f"{edge}, that of its own crop"
            )
        if edge >= CONVNEXT_WHOLE:
            return CropMode.SQUASH, (edge, edge), (edge, edge)
        resized = int(edge / _number(config["crop_pct"], "crop_pct", source))
        return CropMode.CENTER, (resized, resized), (edge, edge)
    if crop is None:
        expected = "a crop, or height and width, so that all images get one size"
        raise _refused(source, "size", config["size"], expected)
    resized = int(LEVIT_MORE * edge) if name == "Levit" else edge
    return CropMode.CENTER, (resized, resized), crop


def _share(config: Config, size: Size, scaled: Size | None, source: str) -> float:
    try:
        return 1.0 if scaled is None else crop_share(size, scaled)
    except ValueError as error:
        got = f"size={config['size']!r} crop_size={config['crop_size']!r}: {error}"
        raise ModelError(
            source, got, "a crop within the size, of the same share of both sides"
        ) from None


def _sides(config: Config, key: str, source: str, *, square: bool) -> dict[str, int]:
    """Return the sides of a size in any of its forms, by their names in the library."""
    told = config[key]
    if isinstance(told, int) and square:
        sides = {"height": told, "width": told}
    elif isinstance(told, int):
        sides = {"shortest_edge": told}
    elif isinstance(told, list | tuple) and len(told) == 2:
        sides = dict(zip(("height", "width"), told, strict=True))
    elif isinstance(told, Mapping):
        sides = {name: side for name, side in told.items() if side is not None}
    else:
        sides = {}
    if not sides or not all(
        type(side) is int and 1 <= side <= MOST_PIXELS for side in sides.values()
    ):
        raise _refused(source, key, told, f"sides of 1 to {MOST_PIXELS} pixels")
    return sides


def _box(config: Config, key: str, source: str) -> Size:
    sides = _sides(config, key, source, square=True)
    if set(sides) != {"height", "width"}:
        raise _refused(source, key, config[key], "height and width")
    return sides["height"], sides["width"]


def _scale(config: Config, source: str) -> dict[str, tuple[float, ...]]:
    """Return mean and deviation of pixels on a scale from 0 to 1, whatever the processor's scale is."""
    factor = (
        _number(config["rescale_factor"], "rescale_factor", source)
        if config["do_rescale"]
        else 1.0
    )
    mean: tuple[float, ...] = (0.0,) * 3
    std: tuple[float, ...] = (1.0,) * 3
    if config["do_normalize"]:
        mean, std = (_channels(config[key], key, source) for key in ("image_mean", "image_std"))
    most = 255 * factor
    return {
        "mean": tuple(each / most for each in mean),
        "std": tuple(each / most for each in std),
    }


def _channels(told: Any, key: str, source: str) -> tuple[float, ...]:
    values = (told,) * 3 if isinstance(told, int | float) else told
    if not isinstance(values, list | tuple) or len(values) != 3:
        raise _refused(source, key, told, "three numbers")
    if not all(type(each) in (int, float) and math.isfinite(each) for each in values):
        raise _refused(source, key, told, "three numbers")
    return tuple(map(float, values))


def _number(told: Any, key: str, source: str) -> float:
    if type(told) not in (int, float) or not 0 < told < math.inf:
        raise _refused(source, key, told, "a number above 0")
    return float(told)


def _interpolation(told: Any, source: str) -> str:
    if type(told) is not int or not 0 <= told < len(RESAMPLING):
        expected = ", ".join(f"{number} ({word})" for number, word in enumerate(RESAMPLING))
        raise _refused(source, "resample", told, f"one of {expected}")
    return RESAMPLING[told]


def _refused(source: str, key: str, value: object, expected: str) -> ModelError:
    return ModelError(source, f"{key}={value!r}", expected, ALL_GIVEN)
