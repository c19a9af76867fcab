"""The flags that say how a model is trained, for the verbs that train."""

import argparse
from typing import TYPE_CHECKING

from exporter.settings import Parser, add_flags, from_flags
from exporter.training.presets import PRESETS
from exporter.workflows.recipes.recipe import Recipe

if TYPE_CHECKING:
    from exporter.training.settings import FinetuneSettings

__all__ = ["add_training", "training_of"]


def add_training(parser: Parser, preset: str) -> None:
    """Add a flag for the preset and, in a group of their own, for all settings of fine-tuning."""
    from exporter.training.settings import FinetuneSettings

    parser.add_argument(
        "--preset", default=preset, metavar=f"{{{','.join(PRESETS)}}}",
        help="Values of the settings below: paper has their defaults, short takes 5 epochs at a higher learning "
        f"rate. Default: {preset}.",
    )  # fmt: skip
    training = parser.group("training")
    # The seed is the recipe's.
    own = [name for name in FinetuneSettings.__dataclass_fields__ if name != "seed"]
    add_flags(training, FinetuneSettings, own, PRESETS[preset])


def training_of(arguments: argparse.Namespace) -> "FinetuneSettings":
    """Return the settings of the flags, over those of the preset.

    Raises:
        RecipeError: There is no such preset, or a value is out of range.
    """
    from exporter.training.settings import FinetuneSettings, preset_values

    recipe, own = from_flags(Recipe, arguments), "augment" not in arguments
    start = preset_values(arguments.preset, recipe.model, recipe.checkpoint, own_augmentation=own)
    return from_flags(FinetuneSettings, arguments, start)
