"""Files bundled with the package: a small DeiT-shaped ViT for handwritten digits, and the plugin's source."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

__all__ = ["DIGITS_VIT", "PLUGIN_SOURCE", "BundledModel"]

# A symbolic link to plugins/cdf_retain in a checkout; the files themselves in the wheel.
PLUGIN_SOURCE = Path(__file__).with_name("cdf_retain")


@dataclass(frozen=True)
class BundledModel:
    """A timm architecture, its arguments, and the paths of its weights and training record.

    `preprocessing` overrides entries of timm's config, under timm's keys.
    """

    name: str
    architecture: str
    model_kwargs: Mapping[str, int]
    num_classes: int
    class_names: tuple[str, ...]
    preprocessing: Mapping[str, object]
    weights: Path
    record: Path


DIGITS_VIT = BundledModel(
    name="digits_vit",
    architecture="vit_tiny_patch16_224",
    model_kwargs=MappingProxyType({"img_size": 56, "patch_size": 4, "embed_dim": 128, "num_heads": 4}),
    num_classes=10,
    class_names=tuple("0123456789"),
    preprocessing=MappingProxyType(
        {"interpolation": "bicubic", "crop_pct": 1.0, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    ),
    weights=Path(__file__).with_name("digits_vit.safetensors"),
    record=Path(__file__).with_name("digits_vit.json"),
)
