"""The flags that verbs share, those of training too, and a recipe beneath them."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from exporter.cli import compile  # noqa: A004
from exporter.cli.flags import (
    AMOUNT,
    IMAGES,
    MEASURED,
    MODEL,
    SCHEDULE,
    add_recipe,
    add_training,
    recipe_of,
    training_of,
)
from exporter.errors import RecipeError
from exporter.schedule.prune import Prune
from exporter.settings.fields import flags_of
from exporter.settings.flags import Parser
from exporter.training.settings import PRESETS, FinetuneSettings
from exporter.workflows.recipe import Images, Recipe
from tests.commands import Command, recipe_file


def arguments_of(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    compile.add_arguments(parser)
    return parser.parse_args(["--out", "out", *flags])


@pytest.mark.parametrize("group", [AMOUNT, IMAGES, MEASURED, MODEL, SCHEDULE])
def test_a_group_names_fields_of_the_recipe(group: tuple[str, ...]) -> None:
    assert set(group) <= set(flags_of(Recipe))
    assert len(set(group)) == len(group)


def test_no_two_groups_share_a_flag() -> None:
    names = [*AMOUNT, *IMAGES, *MEASURED, *MODEL, *SCHEDULE]
    assert len(set(names)) == len(names)


def test_flags_alone() -> None:
    assert recipe_of(arguments_of("--rho", "0.5", "--batch", "3")) == Recipe.of(rho=0.5, batch=3)


def test_flags_stand_over_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        '[model]\nname = "digits_vit"\n[images]\nimages = "photos"\n[prune]\nrho = 0.9\n[measure]\nbatch = 4\n'
    )
    told = recipe_of(arguments_of("--recipe", str(recipe), "--rho", "0.6", "--threads", "1"))
    assert told == Recipe.of(model="digits_vit", images=tmp_path / "photos", rho=0.6, batch=4, threads=1)


@pytest.mark.parametrize(
    ("flags", "amount"),
    [
        (("--mac-reduction", "0.4"), {"mac_reduction": 0.4}),
        (("--rates", "2=0.5"), {"rates": {2: 0.5}}),
        (("--schedule", "s.json"), {"schedule": Path("s.json")}),
    ],
)
def test_an_amount_takes_the_place_of_the_recipes_other(
    tmp_path: Path, flags: tuple[str, ...], amount: dict[str, Any]
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text("[prune]\nrho = 0.7\n[images]\nseed = 3\n")
    assert recipe_of(arguments_of("--recipe", str(recipe), *flags)) == Recipe(
        images=Images(seed=3), prune=Prune(**amount)
    )


def test_a_recipe_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"none\.toml"):
        recipe_of(arguments_of("--recipe", str(tmp_path / "none.toml")))


@pytest.mark.parametrize(("flag", "value"), [("--mac-reduction", "0.4"), ("--rho", "0.5")])
def test_a_flag_stands_over_the_recipes_other_way_to_say_how_much(
    star_export: Command, tmp_path: Path, flag: str, value: str
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        '[model]\nname = "digits_vit"\n[prune]\n'
        + ("rho = 0.7\n" if flag != "--rho" else "mac_reduction = 0.3\n")
    )
    done = star_export("compile", "--recipe", recipe, flag, value, "--out", tmp_path / "out")
    assert "--images" in done.error


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
