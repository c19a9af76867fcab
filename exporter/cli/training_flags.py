"""The flags that say how a model is trained, for the verbs that train."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from exporter.errors import RecipeError
from exporter.settings import add_flags, from_flags
from exporter.training.presets import PRESETS, Augmentation

if TYPE_CHECKING:
    from exporter.training.settings import FinetuneSettings

__all__ = ["add_training", "trained_like", "training_of"]

# The settings that say how images are augmented.
AUGMENTED = ("augment", *Augmentation.__dataclass_fields__)


def add_training(parser: Any, preset: str) -> None:
    """Add a flag for the preset and, in a group of their own, for all settings of fine-tuning."""
    from exporter.training.settings import FinetuneSettings  # noqa: PLC0415

    parser.add_argument(
        "--preset", default=preset, metavar=f"{{{','.join(PRESETS)}}}",
        help="Values of the settings below: paper has their defaults, short takes 5 epochs at a higher learning "
        f"rate. Default: {preset}.",
    )  # fmt: skip
    training = parser.add_argument_group("training")
    # The seed is the recipe's.
    own = [name for name in FinetuneSettings.__dataclass_fields__ if name != "seed"]
    add_flags(training, FinetuneSettings, own)


def training_of(arguments: argparse.Namespace) -> "FinetuneSettings":
    """Return the settings of the flags, over those of the preset.

    Raises:
        RecipeError: There is no such preset, or a value is out of range.
    """
    from exporter.training.settings import FinetuneSettings  # noqa: PLC0415

    preset = trained_like(arguments.preset, getattr(arguments, "model", None))
    return from_flags(FinetuneSettings, arguments, preset)


def trained_like(preset: str, name: str | None) -> dict[str, Any]:
    """Return the values of a preset; a bundled model is augmented as in its own training.

    Raises:
        RecipeError: There is no such preset.
    """
    from exporter import bundled  # noqa: PLC0415

    if preset not in PRESETS:
        raise RecipeError("--preset", repr(preset), f"one of {', '.join(PRESETS)}")
    model = bundled.MODELS.get(name or "")
    if model is None:
        return dict(PRESETS[preset])
    trained = json.loads(model.record.read_text(encoding="utf-8"))["settings"]
    return {**PRESETS[preset], **{name: trained[name] for name in AUGMENTED if name in trained}}
