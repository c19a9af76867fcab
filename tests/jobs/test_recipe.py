"""A record for each step gives flags, help, defaults and the tables of a TOML file."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.flags import add_recipe, recipe_of
from exporter.cli.setting_flags import add_flags
from exporter.core.base.canonical_json import to_json
from exporter.core.base.errors import ModelError, RecipeError
from exporter.core.base.settings import fields_of, sections_of
from exporter.core.base.vocabulary import Layout, Method
from exporter.jobs.recipe import (
    Lowering,
    Recipe,
    read_recipe,
    save_recipe,
)
from tests.commands import recipe_with


def parse(*flags: str) -> Recipe:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_recipe(parser)
    add_flags(parser, Recipe, FLAGS)
    return recipe_of(parser.parse_args(flags))


FIELDS = [
    (f"{section}.{name}", field)
    for section, settings in sections_of(Recipe).items()
    for name, field in fields_of(settings).items()
]
FLAGS = [field.key for _, field in FIELDS if field.has_flag]


def written(folder: Path, text: str) -> Path:
    (folder / "r.toml").write_text(text)
    return folder / "r.toml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nmodle = 'm'", "r.toml: [model] modle | got an unknown key"),
        (
            "modle = 'm'",
            "r.toml: modle | got an unknown key | need one of the tables [model], [images]",
        ),
        ("rho = 0.5", "r.toml: rho | got a key outside its table | need [prune] rho"),
        (
            "model = 'm'",
            "r.toml: model | got a key outside its table | need [model] name",
        ),
        (
            "seed = 1",
            "got a key outside its table | need [images] seed or [prune] seed or [calibrate] seed",
        ),
        (
            "[images]\nrho = 0.5",
            "r.toml: [images] rho | got a key of another table | need [prune] rho",
        ),
        ("lower = 3", "r.toml: lower | got 3 | need a table, [lower]"),
        (
            "[prune]\nrho = 'high'",
            "r.toml: [prune] rho | got 'high' | need a number in (0, 1]",
        ),
        (
            "[model]\npreprocess = {wings = 2}",
            "preprocess | got {'wings': 2} | need values of interpolation, mean, std",
        ),
        ("extends = 3", "r.toml: extends | got 3 | need"),
        ("training = 3", "r.toml: training | got 3 | need"),
        ("rho = ", "a TOML recipe"),
    ],
)
def test_a_wrong_recipe_names_the_key_and_its_table(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe(written(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"rates": {2: 0.5, 4: 0.7}, "threads": 3},
        {
            "class_map": "sorted",
            "method": "a-star",
            "outputs": ("embedding", "tokens"),
            "input_kind": "uint8",
        },
        {
            "checkpoint": "/w/w.pth",
            "model_kwargs": {"img_size": 32},
            "preprocess": {"mean": (0.5, 0.5, 0.5)},
        },
    ],
)
def test_a_recipe_that_is_written_is_read_again(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    recipe = recipe_with(images="/photos", rho=0.5, **values)
    save_recipe(recipe, tmp_path / "r.toml", "Found by: hand")
    assert (tmp_path / "r.toml").read_text().startswith("# Found by: hand\n")
    again = Recipe.of(read_recipe(tmp_path / "r.toml"))
    assert to_json(again) == to_json(recipe)


def test_a_recipe_over_another(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    base = '[images]\nimages = "photos"\n[prune]\nrho = 0.5\nalpha = 0.3\n[measure]\nbatch = 4\n'
    (tmp_path / "shared/base.toml").write_text(base)
    (tmp_path / "r.toml").write_text(
        'extends = "shared/base.toml"\n[prune]\nmac_reduction = 0.7\n'
    )
    assert read_recipe(tmp_path / "r.toml") == {
        "images": {"images": tmp_path / "shared/photos"},
        "prune": {"alpha": 0.3, "mac_reduction": 0.7},
        "measure": {"batch": 4},
    }


def test_an_order_of_classes_is_no_path(tmp_path: Path) -> None:
    for text, expected in (
        ("natural", Path("natural")),
        ("map.json", tmp_path / "map.json"),
    ):
        path = written(tmp_path, f'[images]\nclass_map = "{text}"\n')
        assert read_recipe(path) == {"images": {"class_map": expected}}


RECIPES = sorted((Path(__file__).parents[2] / "engines").rglob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_that_come_with_it(path: Path) -> None:
    Recipe.of(read_recipe(path))


def test_recipes_that_extend_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "b.toml").write_text('extends = "a.toml"')
    with pytest.raises(RecipeError, match="got a recipe that extends itself"):
        read_recipe(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("lowering", "method", "error", "message"),
    [
        (
            Lowering("tensorrt-fp32", Layout.PACKED),
            Method.A_STAR,
            ModelError,
            "layout packed",
        ),
        (Lowering(layout=Layout.PADDED), Method.STAR, RecipeError, "padded for star"),
        (Lowering(layout=Layout.PADDED), None, RecipeError, "padded for a dense model"),
    ],
)
def test_target_method_and_layout_go_together(
    lowering: Lowering, method: Method | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lowering.check_method(method)
