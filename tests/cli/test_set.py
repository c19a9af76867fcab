"""`--set TABLE.KEY=VALUE`: every key of a recipe, with the values and the checks of its TOML file."""

import typing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.flags import add_recipe, recipe_of
from exporter.cli.parser import Parser
from exporter.cli.setting_flags import add_flags
from exporter.cli.training_flags import TRAINING_TABLES, add_training, training_of
from exporter.core.base.errors import RecipeError
from exporter.core.base.settings import Field, fields_of, sections_of
from exporter.jobs.recipe import TRAINING, Recipe
from exporter.models.request import PREPROCESS_KEYS
from exporter.training.settings import FinetuneSettings
from tests.commands import Command
from tests.examples import FEW

TABLES = {**sections_of(Recipe), TRAINING: FinetuneSettings}
PLACES = [(table, name) for table, kind in TABLES.items() for name in fields_of(kind)]

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(1, 5),
    float: st.floats(0.01, 0.99),
    str: st.sampled_from(["layer:-2", "digits_vit", "a b"]),
    Path: st.sampled_from(["/photos/a b", "/x=1"]),
}


def values_of(field: Field) -> st.SearchStrategy[Any]:
    """Values of a field, as TOML has them."""
    if field.words:
        return st.sampled_from(list(map(str, field.words)))
    origin, items = typing.get_origin(field.plain), typing.get_args(field.plain)
    if origin is dict:
        names = PREPROCESS_KEYS if "crop_pct" in field.help else ("2", "3")
        entries = (
            st.booleans() | st.floats(0.5, 0.9) if Any in items else st.floats(0.5, 0.9)
        )
        return st.dictionaries(st.sampled_from(names), entries, min_size=1)
    if origin is tuple:
        item = next(kind for kind in (str, int, float) if kind in _kinds(items[0]))
        size = 4 if Ellipsis in items else len(items)
        return st.lists(SCALARS[item], min_size=min(size, 2), max_size=size)
    return SCALARS[field.plain]


def _kinds(kind: Any) -> set[Any]:
    return {kind}.union(*map(_kinds, typing.get_args(kind)))


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def words_of(place: str, value: Any) -> list[str]:
    """The value as words of a command."""
    if not isinstance(value, dict):
        return ["--set", f"{place}={_word(value)}"]
    words = []
    for name, entry in value.items():
        words += ["--set", f"{place}.{name}={_word(entry)}"]
    return words


@cache
def parser() -> Parser:
    trains = Parser()
    add_recipe(trains, TRAINING_TABLES)
    add_flags(trains, Recipe, ("rates", "rho", "mac_reduction"))
    add_training(trains, "paper")
    return trains


def read(*flags: str) -> tuple[Recipe, FinetuneSettings]:
    arguments = parser().parse_args(flags)
    recipe = recipe_of(arguments)
    return recipe, training_of(arguments, recipe)


def outcome(*flags: str) -> object:
    """What is read, or why the value contradicts another setting."""
    try:
        return read(*flags)
    except RecipeError as error:
        return str(error)


@pytest.mark.parametrize(("table", "name"), PLACES, ids=map(".".join, PLACES))
@FEW
@given(data=st.data())
def test_a_command_and_a_file_give_the_same_record(
    table: str, name: str, data: st.DataObject
) -> None:
    value = data.draw(values_of(fields_of(TABLES[table])[name]))
    with TemporaryDirectory() as folder:
        path = Path(folder, "r.toml")
        path.write_text(tomli_w.dumps({table: {name: value}}), encoding="utf-8")
        in_file = outcome("--recipe", str(path))
    assert outcome(*words_of(f"{table}.{name}", value)) == in_file


def test_the_later_one_counts_and_both_stand_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("[prune]\nrho = 0.9\nalpha = 0.1\n")
    flags = ("--recipe", str(tmp_path / "r.toml"))
    recipe, _ = read(*flags, "--set", "prune.rho=0.5")
    assert (recipe.prune.rho, recipe.prune.alpha) == (0.5, 0.1)
    assert read(*flags, "--rho", "0.7", "--set", "prune.rho=0.5")[0] == recipe
    assert read(*flags, "--set", "prune.rho=0.7", "--rho", "0.5")[0] == recipe
    by_share, _ = read(*flags, "--set", "prune.mac_reduction=0.4")
    assert (by_share.prune.rho, by_share.prune.mac_reduction) == (None, 0.4)


def test_entries_of_a_dictionary_come_one_by_one() -> None:
    recipe, _ = read("--rates", "2=0.9", "--set", "prune.rates.3=0.5")
    assert recipe.prune.rates == {2: 0.9, 3: 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prune.alpha=2", "--set prune.alpha | got 2 | need a number in [0, 1]"),
        ("prune.scorer=best", "--set prune.scorer | got 'best' | need one of fused"),
        (
            "model.recalibrate=maybe",
            "--set model.recalibrate | got 'maybe' | need bool",
        ),
        (
            "prune.alpa=1",
            "--set prune.alpa | got an unknown setting | need prune.alpha",
        ),
        (
            "prun.alpha=1",
            "--set prun.alpha | got an unknown setting | need prune.alpha",
        ),
        ("alpha=1", "--set alpha | got an unknown setting | need prune.alpha"),
        (
            "seed=1",
            "got an unknown setting | need images.seed or prune.seed or calibrate.seed",
        ),
        (
            "wings=2",
            "got an unknown setting | need TABLE.KEY of the tables model, images, ",
        ),
        ("prune.alpha", "--set | got 'prune.alpha' | need prune.alpha=VALUE"),
        ("prune.alpha.x=1", "--set | got 'prune.alpha.x=1' | need prune.alpha=VALUE"),
        ("prune.rates=2", "--set | got 'prune.rates=2' | need prune.rates.NAME=VALUE"),
        ("prune.rates.2=5", "--set prune.rates.2 | got {'2': 5} | need LAYER=RATE"),
        ("training.lr=no", "--set training.lr | got 'no' | need a number above 0"),
    ],
)
def test_a_wrong_one_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read("--set", text)
    assert message in str(caught.value)


def test_a_setting_that_a_folder_does_not_take_is_named(
    star_export: Command, tmp_path: Path
) -> None:
    for flags, name in (
        (("--set", "measure.threads=1"), "--set measure.threads"),
        (("--set", "images.images=x"), "--images"),
    ):
        line = star_export("check", tmp_path, *flags).error
        assert line.startswith(f"error: {name} | got a value beside an export folder")
