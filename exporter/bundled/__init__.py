"""Files bundled with the package: three small ViTs with their training records, and the C++ sources."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).parent
# A symbolic link to plugins/ in a checkout; the files themselves in the wheel.
PLUGIN_SOURCE = HERE / "tensorrt"


@dataclass(frozen=True)
class BundledModel:
    """A timm architecture with trained weights; all that is known of it is in its record."""

    name: str

    @property
    def weights(self) -> Path:
        """The weights, fp16."""
        return HERE / f"{self.name}.safetensors"

    @cached_property
    def record(self) -> dict[str, Any]:
        """How they were trained, and how good they are, as `calib_data/train.py` wrote it."""
        return json.loads((HERE / f"{self.name}.json").read_text(encoding="utf-8"))

    @property
    def architecture(self) -> str:
        """Timm's name of the network."""
        return self.record["settings"]["model"]

    @property
    def model_kwargs(self) -> dict[str, Any]:
        """The arguments of the network."""
        return {
            **self.record["settings"]["model_kwargs"],
            "num_classes": len(self.class_names),
        }

    @property
    def preprocessing(self) -> dict[str, Any]:
        """What differs from the preprocessing in timm's config, under timm's keys."""
        trained = self.record["settings"]
        colours = {key: tuple(trained[key]) for key in ("mean", "std")}
        return {
            "interpolation": trained["interpolation"],
            "crop_pct": trained["crop_pct"],
            # Of the square images nothing is cropped: both roundings are theirs, and this is Hugging Face's.
            "crop_rounding": "down",
            **colours,
        }

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return tuple(self.record["class_names"])


DIGITS_VIT = BundledModel("digits_vit")
# Smaller digits anywhere on the canvas: no fixed choice of patches contains them.
OFFSET_DIGITS_VIT = BundledModel("offset_digits_vit")
# Photos. The images, CIFAR-10, are not bundled.
CIFAR_VIT = BundledModel("cifar_vit")

MODELS = MappingProxyType(
    {model.name: model for model in (DIGITS_VIT, OFFSET_DIGITS_VIT, CIFAR_VIT)}
)
