"""The flags that say how a model is trained, for the verbs that train."""

import argparse
from typing import TYPE_CHECKING

from exporter.settings import Parser, add_flags, from_flags
from exporter.training.presets import PRESETS
from exporter.workflows.recipes.recipe import Recipe, read_training

if TYPE_CHECKING:
    from exporter.training.settings import FinetuneSettings

__all__ = ["add_training", "training_of"]


def add_training(parser: Parser, preset: str) -> None:
    """Add a flag for the preset and, in a group of their own, for what is often set beside it."""
    from exporter.training.settings import FinetuneSettings

    parser.add_argument(
        "--preset", default=preset, metavar=f"{{{','.join(PRESETS)}}}",
        help="How to train: paper as in the paper of STAR, short for 5 epochs at a higher learning rate. The table "
        f"[training] of a recipe replaces single values, e.g. ema_decay = 0.999. Default: {preset}.",
    )  # fmt: skip
    add_flags(parser.group("training"), FinetuneSettings, defaults=PRESETS[preset])


def training_of(arguments: argparse.Namespace, recipe: Recipe) -> "FinetuneSettings":
    """Return the settings of the flags, over those of the recipe's table `training`, over those of the preset.

    Raises:
        RecipeError: There is no such preset, or a value is out of range.
    """
    from exporter.training.settings import FinetuneSettings, preset_values

    table = {} if arguments.recipe is None else read_training(arguments.recipe, FinetuneSettings)
    own = "augment" not in table
    start = preset_values(arguments.preset, recipe.model, recipe.checkpoint, own_augmentation=own)
    return from_flags(FinetuneSettings, arguments, {**start, "seed": recipe.seed, **table})
