"""What a config of the library says of a vision tower; anyone may have edited it, so its types are checked."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from exporter.errors import ModelError

__all__ = ["Config", "check_types", "class_named", "vision_config"]

Config: TypeAlias = Mapping[str, Any]

# Keys of a config that hold counts, and other numbers.
COUNTS = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "patch_size"),
    *("num_channels", "projection_dim"),
)
NUMBERS = ("layer_norm_eps", "mlp_ratio", "rope_theta")
LARGEST = 2**31 - 1
# Models of images and text → their vision tower.
PAIRS = {"CLIPModel": "CLIPVisionModelWithProjection", "SiglipModel": "SiglipVisionModel"}


def class_named(config: Config) -> str:
    """Return the first of the library's classes that a config names, "" if it names none."""
    told = config.get("architectures")
    return str(told[0]) if isinstance(told, list) and told else ""


def vision_config(config: Config) -> dict[str, Any]:
    """Return the config of a vision tower: the whole one, or the one within that of a model of images and text."""
    if "vision_config" not in config:
        return dict(config)
    inner = config["vision_config"]
    if not isinstance(inner, Mapping):
        return {}
    # A pair of towers projects both to one size, which is the pair's.
    shared = {key: config[key] for key in ("projection_dim",) if key in config}
    paired = PAIRS.get(class_named(config))
    return {**inner, **shared, **({"architectures": [paired]} if paired else {})}


def check_types(config: Config, source: str) -> None:
    """Check the types of what is computed with: the library writes them, but anyone may edit them."""
    for key in COUNTS:
        value = config.get(key, 1)
        if type(value) is not int or not 1 <= value <= LARGEST:
            raise ModelError(source, f"{key} {_short(value)}", f"an integer from 1 to {LARGEST}")
    sides = config.get("image_size", 1)
    sides = sides if isinstance(sides, list | tuple) and len(sides) == 2 else [sides]
    if not all(type(side) is int and 1 <= side <= LARGEST for side in sides):
        raise ModelError(source, f"image_size {_short(config['image_size'])}", "one or two integers above 0")
    for key in NUMBERS:
        value = config.get(key, 1)
        if type(value) not in (int, float) or not 0 < value <= LARGEST:
            raise ModelError(source, f"{key} {_short(value)}", f"a number above 0, at most {LARGEST}")
    if not isinstance(config.get("hidden_act", ""), str) or not isinstance(
        config.get("id2label", {}), Mapping
    ):
        raise ModelError(source, "a config with values of other types", "the one that the library wrote")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:30]}… ({len(text)} characters)"
