"""What verbs that train share: the flags of how, and the settings of these."""

import argparse

from exporter.cli.parser import Parser
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.jobs.recipe import TRAINING, Recipe, read_training
from exporter.training.settings import PRESETS, FinetuneSettings, preset_values

# The tables of a recipe's file beside those of a compilation.
TRAINING_TABLES = {TRAINING: FinetuneSettings}


def add_training(parser: Parser, preset: str) -> None:
    """Add a flag for the preset and, in a group of their own, for what is often set beside it."""
    parser.add_argument(
        "--preset", default=preset, metavar=f"{{{','.join(PRESETS)}}}",
        help="How to train: paper as in the paper of STAR, short for 5 epochs at a higher learning rate. The table "
        f"[training] of a recipe replaces single values, e.g. ema_decay = 0.999. Default: {preset}.",
    )  # fmt: skip
    add_flags(
        parser.group("training"),
        FinetuneSettings,
        defaults=PRESETS[preset],
        table=TRAINING,
    )


def training_of(arguments: argparse.Namespace, recipe: Recipe) -> FinetuneSettings:
    """Return the settings of the flags, over those of the recipe's table `training`, over those of the preset."""
    table = (
        {}
        if arguments.recipe is None
        else read_training(arguments.recipe, FinetuneSettings)
    )
    augments = "augment" in table or f"{TRAINING}.augment" in arguments
    model = recipe.model
    start = preset_values(
        arguments.preset,
        model.name or None,
        model.checkpoint,
        own_augmentation=not augments,
    )
    base = {**start, "seed": recipe.images.seed, **table}
    return from_flags(FinetuneSettings, arguments, base, TRAINING)
