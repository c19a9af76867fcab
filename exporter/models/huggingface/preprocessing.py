"""The preprocessing of a folder's image processor, under timm's keys."""

from collections.abc import Mapping
from typing import Any

__all__ = ["preprocessing_from_processor"]

RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


def preprocessing_from_processor(config: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an image processor's config; `usual` are those of the kind of model without one."""
    own = {
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "interpolation": "bilinear",
        "crop_mode": "squash",
    }
    if not config:
        return {**own, "crop_pct": 1.0, **usual}
    values: dict[str, Any] = {
        "mean": tuple(config.get("image_mean", own["mean"])),
        "std": tuple(config.get("image_std", own["std"])),
        "interpolation": RESAMPLING.get(config.get("resample", 2), "bilinear"),
        "crop_mode": "squash",
        "crop_pct": 1.0,
    }
    size, crop = config.get("size", {}), config.get("crop_size")
    resized = _side(size)
    if isinstance(size, dict) and "shortest_edge" in size:
        values["crop_mode"] = "center"
    if config.get("do_center_crop") and crop and resized:
        values["crop_pct"] = _side(crop) / resized
    return values


def _side(size: Any) -> int:
    """Return the height in pixels of a size in any of its forms; 0 where there is none."""
    if isinstance(size, dict):
        size = size.get("height", size.get("shortest_edge"))
    return 0 if size is None else int(size)
