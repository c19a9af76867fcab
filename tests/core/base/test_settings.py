"""A field says what it is once: types, limits and TOML keys follow."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import exporter
from exporter.core.base.errors import RecipeError
from exporter.core.base.settings import Field, Settings, fields_of, from_table
from exporter.core.base.vocabulary import Layout
from tests.core.base.every import every_settings
from tests.core.base.example import Example


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rho": 1.7}, "rho | got 1.7 | need a number in (0, 1]"),
        ({"rho": math.nan}, "rho | got nan | need a number in (0, 1]"),
        ({"rho": 10**400}, "rho | got 1000000000"),
        ({"anything": math.nan}, "anything | got nan | need a finite number"),
        ({"anything": "5"}, "anything | got '5' | need a finite number"),
        ({"pair": (0.5, math.inf)}, "need a finite number"),
        ({"count": 0}, "count | got 0 | need an integer from 1 to"),
        (
            {"count": 2**31},
            "count | got 2147483648 | need an integer from 1 to 2147483647",
        ),
        ({"count": True}, "count | got True"),
        ({"word": "c"}, "word | got 'c' | need one of a, b"),
        (
            {"layout": "folded"},
            "layout | got 'folded' | need one of shrinking, packed, padded",
        ),
        ({"batches": (1, 0)}, "batches | got (1, 0) | need an integer from 1"),
        (
            {"place": "a\0b"},
            "place | got 'a\\x00b' | need a path without NUL, of names of at most 255 bytes",
        ),
        (
            {"place": "x" * 256},
            "need a path without NUL, of names of at most 255 bytes",
        ),
        ({"shares": {1: 1.5}}, "shares | got {1: 1.5} | need a number in (0, 1]"),
        ({"really": "yes"}, "really | got 'yes' | need bool"),
    ],
)
def test_a_value_of_another_kind_is_refused_as_it_is_given(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        Example(**values)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_values_become_those_of_their_types() -> None:
    example = Example(layout="packed", place="a/b", batches=[4], rho=1)  # type: ignore[arg-type]
    assert example.layout is Layout.PACKED
    assert (example.place, example.batches) == (Path("a/b"), (4,))
    assert type(example.rho) is float


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        Example(count=3, least=4)
    assert str(caught.value) == "least | got 4 | need count at most"


def test_a_word_may_be_none_only_where_none_is_the_default() -> None:
    assert Example(maybe=None).maybe is None
    with pytest.raises(RecipeError, match=r"word \| got None \| need one of a, b"):
        Example(word=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"rhoo": 1}, "r.toml: rhoo | got an unknown key | need one of rho, alpha"),
        ({"rho": "high"}, "r.toml: rho | got 'high' | need a number in (0, 1]"),
    ],
)
def test_a_wrong_table_names_the_file_and_the_key(
    table: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        from_table(Example, table, "r.toml:")
    assert message in str(caught.value)


@pytest.mark.parametrize("settings", every_settings(), ids=lambda each: each.__name__)
def test_a_number_of_settings_has_two_limits(settings: type[Settings]) -> None:
    for name, field in fields_of(settings).items():
        for number in (math.nan, math.inf, -math.inf):
            for value in (number, (number,), (number,) * 2, (number,) * 3):
                with pytest.raises(RecipeError):
                    field.converted(name, value)
        for number in (-(2**40), 2**40):
            with suppress(RecipeError):  # a float may be as large
                assert type(field.converted(name, number)) is not int


def first_in_range(field: Field) -> float:
    for number in (0.5, 1.5, 1, 5, 20):
        with suppress(RecipeError):
            field.converted("", number)
            return number
    raise AssertionError(field.key)


@pytest.mark.parametrize("settings", every_settings(), ids=lambda each: each.__name__)
def test_numbers_of_other_libraries_are_pythons_and_truth_is_none(
    settings: type[Settings],
) -> None:
    for name, field in fields_of(settings).items():
        if field.plain not in (int, float):
            continue
        number = first_in_range(field)
        for same in (np.array(number), np.array(number)[()], torch.tensor(number)):
            value = field.converted(name, same)
            assert (value, type(value)) == (number, field.plain)
        for wrong in (True, np.True_, torch.tensor(True), "1", np.nan, [number]):
            with pytest.raises(RecipeError):
                field.converted(name, wrong)


def test_numbers_in_containers_are_pythons() -> None:
    example = Example(
        batches=np.array([1, 4]),  # type: ignore[arg-type]
        shares={np.int64(1): np.float32(0.5)},  # type: ignore[dict-item]
    )
    assert (example.batches, example.shares) == ((1, 4), {1: 0.5})
    kwargs = exporter.ModelRequest(model_kwargs={"img_size": (np.int64(32), 64)})
    assert repr(kwargs.model_kwargs) == "{'img_size': (32, 64)}"
