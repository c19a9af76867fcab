"""Flags derive from the fields of settings, and settings from flags."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import RecipeError
from exporter.schedule.plan import ScheduleSettings
from exporter.settings import Parser, Settings, add_flags, fields_of, from_table
from exporter.settings.fields import GROUPS
from exporter.vocabulary import Layout
from tests.settings.every import every_settings
from tests.settings.example import Example, parse


def test_flags_are_read_as_the_types_of_their_fields() -> None:
    example = parse(
        *("--rho", "0.7", "--count", "4", "--batches", "1,8", "--pair", "0.25", "2", "--layout", "padded"),
        *("--place", "x", "--named", "a=1", "b=c", "d=(1,2)", "--really", "--word", "b"),
    )
    assert example == Example(
        rho=0.7,
        count=4,
        batches=(1, 8),
        pair=(0.25, 2.0),
        layout=Layout.PADDED,
        place=Path("x"),
        named={"a": 1, "b": "c", "d": (1, 2)},
        really=True,
        word="b",
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--count", "x"), "--count | got 'x' | need an integer from 1"),
        (("--count", "9" * 5000), "--count | got '9999"),
        (("--batches", "1,x"), "--batches | got ['1', 'x']"),
        (("--pair", "nan", "1"), "--pair | got ['nan', '1'] | need a finite number"),
        (("--named", "32"), "--named | got '32' | need NAME=VALUE"),
        (("--shares", "1=0.5", "1=0.7"), "--shares | got a name twice | need each name once"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse(*flags)
    assert message in str(caught.value)


@given(st.floats(0.0, 1.0, exclude_min=True), st.integers(1, 2**31 - 1), st.sampled_from(Layout))
def test_flags_tables_and_python_agree(rho: float, count: int, layout: Layout) -> None:
    given_ = Example(rho=rho, count=count, layout=layout)
    assert parse("--rho", repr(rho), "--count", str(count), "--layout", layout) == given_
    table = {"rho": rho, "count": count, "layout": str(layout)}
    assert Example(**from_table(Example, table, "r.toml")) == given_


@pytest.mark.parametrize(
    "shown",
    [
        "--rho X A share. --",
        "--alpha X A weight. Default: 0.5.",
        "--count N A count. Default: 3.",
        "--word {a,b} A word. Default: a.",
        "--maybe {a,b} A word or none. --",
        "--layout {shrinking,packed,padded} An enum. --",
        "--batches A,B,… A list. Default: 1,2.",
        "--pair X X Two numbers. Default: 0.5,1.0.",
        "--place PATH A path. --",
        "--named NAME=VALUE [NAME=VALUE ...] Names. --",
        "--really, --no-really A switch. Default: False.",
    ],
)
def test_the_help_of_each_kind(shown: str) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Example)
    assert shown in " ".join(parser.format_help().split("options:")[1].split())


def test_a_parser_shows_flags_in_the_group_of_their_field() -> None:
    parser = Parser(prog="star-export")
    add_flags(parser, ScheduleSettings, ("alpha", "method"))
    shown = parser.format_help()
    assert shown.startswith("usage: star-export [options]\n")
    assert shown.index("how to prune:") < shown.index("--method") < shown.index("advanced:")
    assert shown.index("advanced:") < shown.index("--alpha")
    assert "target:" not in shown


def test_one_group_takes_all_flags() -> None:
    parser = Parser(prog="star-export")
    add_flags(parser.add_argument_group("of the search"), ScheduleSettings, ("alpha", "method"))
    shown = parser.format_help()
    assert "advanced:" not in shown
    assert "of the search:" in shown


@pytest.mark.parametrize("settings", every_settings(), ids=lambda each: each.__name__)
def test_groups_are_known(settings: type[Settings]) -> None:
    assert {field.group for field in fields_of(settings).values()} <= {"", *GROUPS}
