"""One record gives flags, help, defaults and TOML keys."""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import MissingDependencyError, RecipeError
from exporter.formats.canonical_json import to_json
from exporter.settings import add_flags, fields_of, from_flags
from exporter.workflows.recipe import MOST_EXTENDS, Recipe, needed, read_recipe, save_recipe


def parse(*flags: str) -> Recipe:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, Recipe, fields_of(Recipe))
    return from_flags(Recipe, parser.parse_args(flags))


def test_no_flags_are_the_defaults() -> None:
    assert parse() == Recipe()


def test_every_setting_has_a_flag_and_a_help_text() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Recipe, fields_of(Recipe))
    text = " ".join(parser.format_help().split())
    for field in dataclasses.fields(Recipe):
        assert f"--{field.name.replace('_', '-')} " in text
        assert " ".join(field.metadata["help"].split()) in text


def test_flags_become_values_of_their_type() -> None:
    recipe = parse(
        *("--model", "deit_tiny_patch16_224", "--images", "photos", "--rho", "0.7", "--batch", "4"),
        *(
            "--model-kwargs",
            "img_size=32",
            "patch_size=4",
            "act_layer=gelu",
            "--preprocess",
            "mean=(0.5,0.5,0.5)",
        ),
    )
    assert (recipe.images, recipe.rho, recipe.batch) == (Path("photos"), 0.7, 4)
    assert recipe.model_kwargs == {"img_size": 32, "patch_size": 4, "act_layer": "gelu"}
    assert recipe.preprocess == {"mean": (0.5, 0.5, 0.5)}


def test_a_list_is_one_word_with_commas_or_a_toml_list(tmp_path: Path) -> None:
    assert parse("--more-batches", "1,4,16").more_batches == (1, 4, 16)
    (tmp_path / "r.toml").write_text("more_batches = [1, 4, 16]\n")
    assert read_recipe(tmp_path / "r.toml")["more_batches"] == (1, 4, 16)
    (tmp_path / "r.toml").write_text("more_batches = ['high']\n")
    with pytest.raises(RecipeError, match=r"got \['high'\] \| need an integer from 1"):
        read_recipe(tmp_path / "r.toml")


def test_flags_go_over_a_recipe() -> None:
    arguments = argparse.Namespace(rho=0.8, out=Path("x"))
    recipe = from_flags(Recipe, arguments, {"rho": 0.7, "model": "m"})
    assert (recipe.rho, recipe.model) == (0.8, "m")


def test_a_recipe_file(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        'model = "m"\nimages = "photos"\nrho = 1\nmodel_kwargs = {img_size = 32}\n'
    )
    values = read_recipe(tmp_path / "r.toml")
    assert values == {
        "model": "m",
        "images": tmp_path / "photos",
        "rho": 1.0,
        "model_kwargs": {"img_size": 32},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle = 'm'", "modle | got an unknown key"),
        ("rho = 'high'", "rho | got 'high' | need a number in (0, 1]"),
        ("batch = true", "batch | got True | need an integer from 1"),
        ("scorer = 'best'", "scorer | got 'best' | need one of"),
        (
            "preprocess = {wings = 2}",
            "preprocess | got {'wings': 2} | need values of interpolation, mean, std",
        ),
        ("extends = 3", "r.toml: extends | got 3 | need"),
        ("rho = ", "a TOML recipe"),
    ],
)
def test_a_wrong_recipe_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_recipe(tmp_path / "r.toml")
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
        {"checkpoint": "/w/w.pth", "model_kwargs": {"img_size": 32}, "preprocess": {"mean": (0.5, 0.5, 0.5)}},
    ],
)
def test_a_recipe_that_is_written_is_read_again(tmp_path: Path, values: dict[str, Any]) -> None:
    recipe = Recipe.of(images="/photos", rho=0.5, **values)
    save_recipe(recipe, tmp_path / "r.toml", "Found by: hand")
    assert (tmp_path / "r.toml").read_text().startswith("# Found by: hand\n")
    again = Recipe.of(
        **{**read_recipe(tmp_path / "r.toml"), **({"class_map": "sorted"} if "class_map" in values else {})}
    )
    assert to_json(again) == to_json(recipe)


def test_a_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="No such file"):
        read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch": 0}, "batch"),
        ({"rounds": 3}, "rounds"),
        ({"rho": 0.5, "mac_reduction": 0.5}, "both"),
        ({"mac_reduction": 1.0}, "mac_reduction"),
    ],
)
def test_values_that_no_stage_takes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Recipe.of(**values)


def test_a_pair_without_a_name() -> None:
    with pytest.raises(RecipeError, match="NAME=VALUE"):
        parse("--model-kwargs", "32")


def test_needed() -> None:
    assert needed(3, "--three", "a number") == 3
    with pytest.raises(RecipeError, match=r"--three \| got nothing"):
        needed(None, "--three", "a number")


def test_a_recipe_over_another(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/base.toml").write_text('images = "photos"\nrho = 0.5\nbatch = 4\n')
    (tmp_path / "r.toml").write_text('extends = "shared/base.toml"\nrho = 0.7\n')
    assert read_recipe(tmp_path / "r.toml") == {
        "images": tmp_path / "shared/photos",
        "rho": 0.7,
        "batch": 4,
    }


def test_an_order_of_classes_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('class_map = "natural"\n')
    assert read_recipe(tmp_path / "r.toml") == {"class_map": Path("natural")}
    (tmp_path / "r.toml").write_text('class_map = "map.json"\n')
    assert read_recipe(tmp_path / "r.toml") == {"class_map": tmp_path / "map.json"}


@pytest.mark.parametrize("text", ["extends = 3", 'extends = "none.toml"', 'extends = "r.toml"'])
def test_a_base_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(RecipeError):
        read_recipe(tmp_path / "r.toml")


RECIPES = sorted((Path(__file__).parents[3] / "engines").rglob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_that_come_with_it(path: Path) -> None:
    Recipe.of(**read_recipe(path))


def test_recipes_that_extend_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "b.toml").write_text('extends = "a.toml"')
    with pytest.raises(RecipeError, match="got a recipe that extends itself"):
        read_recipe(tmp_path / "a.toml")
    for index in range(60):
        (tmp_path / f"{index}.toml").write_text(f'extends = "{index + 1}.toml"')
    with pytest.raises(RecipeError, match=f"got more than {MOST_EXTENDS} in a row"):
        read_recipe(tmp_path / "0.toml")


def test_a_python_without_a_toml_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.10 has none of its own."""
    (tmp_path / "r.toml").write_text("rho = 0.5")
    for name in ("tomllib", "tomli"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=r"tomli .* pip install 'star-export\[export\]'"):
        read_recipe(tmp_path / "r.toml")
