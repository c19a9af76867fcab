"""The flags that verbs share, those of training too, and a recipe beneath them."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from exporter.cli import compile  # noqa: A004
from exporter.cli.flags import add_recipe, add_training, recipe_of, training_of
from exporter.schedule.prune import Prune
from exporter.settings.flags import Parser
from exporter.training.settings import PRESETS, FinetuneSettings
from exporter.workflows.recipe import Images, Recipe
from tests.commands import recipe_file, recipe_with


def arguments_of(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    compile.add_arguments(parser)
    return parser.parse_args(["--out", "out", *flags])


def test_flags_stand_over_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        '[model]\nname = "digits_vit"\n[images]\nimages = "photos"\n[prune]\nrho = 0.9\n[measure]\nbatch = 4\n'
    )
    told = recipe_of(
        arguments_of("--recipe", str(recipe), "--rho", "0.6", "--rounds", "5")
    )
    assert told == recipe_with(
        model="digits_vit", images=tmp_path / "photos", rho=0.6, batch=4, rounds=5
    )


@pytest.mark.parametrize(
    ("told", "flags", "amount"),
    [
        ("rho = 0.7", ("--mac-reduction", "0.4"), {"mac_reduction": 0.4}),
        ("mac_reduction = 0.3", ("--rho", "0.5"), {"rho": 0.5}),
        ("rho = 0.7", ("--rates", "2=0.5"), {"rates": {2: 0.5}}),
        ("rho = 0.7", ("--schedule", "s.json"), {"schedule": Path("s.json")}),
    ],
)
def test_an_amount_takes_the_place_of_the_recipes_other(
    tmp_path: Path, told: str, flags: tuple[str, ...], amount: dict[str, Any]
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f"[prune]\n{told}\n[images]\nseed = 3\n")
    assert recipe_of(arguments_of("--recipe", str(recipe), *flags)) == Recipe(
        images=Images(seed=3), prune=Prune(**amount)
    )


def settings_of(*flags: object) -> FinetuneSettings:
    parser = Parser()
    add_recipe(parser)
    add_training(parser, "short")
    arguments = parser.parse_args([*map(str, flags)])
    return training_of(arguments, recipe_of(arguments))


def test_flags_stand_over_the_recipe_and_it_over_the_preset(tmp_path: Path) -> None:
    recipe = recipe_file(
        tmp_path, training={"ema_decay": 0.9, "epochs": 7, "augment": "none"}
    )
    settings = settings_of("--epochs", "2", "--set", "images.seed=3", *recipe)
    assert settings.epochs == 2
    assert settings.ema_decay == 0.9
    assert settings.augment == "none"
    assert settings.seed == 3
    assert settings.lr == PRESETS["short"]["lr"]
    assert settings_of("--preset", "paper") == FinetuneSettings()


def test_a_recipe_goes_before_a_bundled_models_own_augmentation(tmp_path: Path) -> None:
    for training, augment, hflip in (
        ({}, "affine", 0.0),
        ({"augment": "crop"}, "crop", 0.5),
    ):
        settings = settings_of(
            *recipe_file(tmp_path, model="digits_vit", training=training)
        )
        assert (settings.augment, settings.augmentation.hflip) == (augment, hflip)


def test_a_recipe_takes_the_table_of_the_one_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    base = recipe_file(tmp_path / "base", training={"ema_decay": 0.9, "epochs": 7})[1]
    recipe = recipe_file(tmp_path, extends=str(base), training={"epochs": 8})
    assert (settings_of(*recipe).epochs, settings_of(*recipe).ema_decay) == (8, 0.9)
