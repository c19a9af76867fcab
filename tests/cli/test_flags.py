"""The flags that verbs share, and a recipe beneath them."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from exporter.cli import compile  # noqa: A004
from exporter.cli.flags import AMOUNT, IMAGES, MEASURED, MODEL, SCHEDULE, recipe_of
from exporter.errors import RecipeError
from exporter.schedule.prune import Prune
from exporter.settings import flags_of
from exporter.workflows.recipe import Images, Recipe
from tests.commands import Command


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
