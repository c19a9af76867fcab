"""The flags of training: the settings beneath them are a preset's, and a bundled model's augmentation."""

import argparse

import pytest

from exporter.bundled import DIGITS_VIT, OFFSET_DIGITS_VIT
from exporter.cli.training_flags import add_training, trained_like, training_of
from exporter.errors import RecipeError
from exporter.training.presets import PRESETS
from exporter.training.settings import FinetuneSettings


def test_flags_stand_over_the_preset() -> None:
    parser = argparse.ArgumentParser()
    add_training(parser, "short")
    settings = training_of(parser.parse_args(["--epochs", "2", "--ema-decay", "0.9"]))
    assert (settings.epochs, settings.ema_decay) == (2, 0.9)
    assert settings.lr == PRESETS["short"]["lr"]
    assert training_of(parser.parse_args(["--preset", "paper"])) == FinetuneSettings()


def test_a_bundled_model_is_augmented_as_in_its_own_training() -> None:
    digits, offset = (trained_like("short", each.name) for each in (DIGITS_VIT, OFFSET_DIGITS_VIT))
    assert (digits["augment"], digits["hflip"], digits["rotate"]) == ("affine", 0.0, 12.0)
    assert tuple(offset["scale"]) == (0.85, 1.15)
    assert trained_like("short", "deit_tiny_patch16_224") == PRESETS["short"]
    with pytest.raises(RecipeError, match="--preset"):
        trained_like("long", None)
