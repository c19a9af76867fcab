"""The flags of training: beneath them the recipe's table, beneath that a preset."""

from pathlib import Path

import pytest

from exporter.cli.flags import add_recipe, add_training, recipe_of, training_of
from exporter.errors import RecipeError
from exporter.settings import Parser
from exporter.training.presets import PRESETS
from exporter.training.settings import FinetuneSettings
from tests.commands import recipe_file


def settings_of(*flags: object) -> FinetuneSettings:
    parser = Parser()
    add_recipe(parser)
    add_training(parser, "short")
    arguments = parser.parse_args([*map(str, flags)])
    return training_of(arguments, recipe_of(arguments))


def test_flags_stand_over_the_recipe_and_it_over_the_preset(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, seed=3, training={"ema_decay": 0.9, "epochs": 7, "augment": "none"})
    settings = settings_of("--epochs", "2", *recipe)
    assert (settings.epochs, settings.ema_decay, settings.augment, settings.seed) == (2, 0.9, "none", 3)
    assert settings.lr == PRESETS["short"]["lr"]
    assert settings_of("--preset", "paper") == FinetuneSettings()


def test_a_recipe_takes_the_table_of_the_one_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    base = recipe_file(tmp_path / "base", training={"ema_decay": 0.9, "epochs": 7})[1]
    recipe = recipe_file(tmp_path, extends=str(base), training={"epochs": 8})
    assert (settings_of(*recipe).epochs, settings_of(*recipe).ema_decay) == (8, 0.9)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"nosuch": 1}, "[training] nosuch | got an unknown key"),
        ({"ema_decay": 2}, "[training] ema_decay | got 2"),
        ({"warmup_epochs": 9}, "warmup_epochs | got 9 | need below epochs"),
    ],
)
def test_what_is_none_of_the_table(tmp_path: Path, training: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        settings_of(*recipe_file(tmp_path, training=training))
    assert message in str(caught.value)


def test_few_settings_have_flags() -> None:
    parser = Parser()
    add_training(parser, "short")
    flags = {name for action in parser._actions for name in action.option_strings if name.startswith("--")}
    assert flags - {"--help"} == {
        *("--preset", "--epochs", "--batch-size", "--lr", "--amp", "--no-amp", "--max-train-images"),
    }
