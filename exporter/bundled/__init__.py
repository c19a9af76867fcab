"""Files bundled with the package: three small ViTs with their training records, and the C++ sources."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).parent
# A symbolic link to plugins/ in a checkout; the files themselves in the wheel.
PLUGIN_SOURCE = HERE / "tensorrt"


@dataclass(frozen=True)
class BundledModel:
    """A timm architecture, its arguments, and what its weights were trained on.

    `preprocessing` overrides entries of timm's config, under timm's keys.
    """

    name: str
    architecture: str
    model_kwargs: Mapping[str, int]
    class_names: tuple[str, ...]
    preprocessing: Mapping[str, object]

    @property
    def num_classes(self) -> int:
        """Number of logits."""
        return len(self.class_names)

    @property
    def weights(self) -> Path:
        """The weights, fp16."""
        return HERE / f"{self.name}.safetensors"

    @property
    def record(self) -> Path:
        """How they were trained, and how good they are."""
        return HERE / f"{self.name}.json"


DIGITS_VIT = BundledModel(
    name="digits_vit",
    architecture="vit_tiny_patch16_224",
    model_kwargs=MappingProxyType({"img_size": 56, "patch_size": 4, "embed_dim": 128, "num_heads": 4}),
    class_names=tuple("0123456789"),
    preprocessing=MappingProxyType(
        {"interpolation": "bicubic", "crop_pct": 1.0, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    ),
)

# Smaller digits anywhere on the canvas: no fixed choice of patches contains them.
OFFSET_DIGITS_VIT = replace(
    DIGITS_VIT,
    name="offset_digits_vit",
    model_kwargs=MappingProxyType({"img_size": 56, "patch_size": 4, "embed_dim": 96, "num_heads": 3}),
)

# Photos. The images, CIFAR-10, are not bundled.
CIFAR_VIT = BundledModel(
    name="cifar_vit",
    architecture="vit_tiny_patch16_224",
    model_kwargs=MappingProxyType(
        {"img_size": 32, "patch_size": 4, "embed_dim": 192, "num_heads": 3, "depth": 9}
    ),
    class_names=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    preprocessing=MappingProxyType(
        {
            "interpolation": "bicubic",
            "crop_pct": 1.0,
            "mean": (0.4914, 0.4822, 0.4465),
            "std": (0.247, 0.2435, 0.2616),
        }
    ),
)

MODELS = MappingProxyType({each.name: each for each in (DIGITS_VIT, OFFSET_DIGITS_VIT, CIFAR_VIT)})
