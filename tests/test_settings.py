"""A field says what it is once: types, limits, flags, help and TOML keys follow."""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.main import main
from exporter.errors import RecipeError
from exporter.settings import (
    Batches,
    Natural,
    Positive,
    Settings,
    Share,
    Weight,
    add_flags,
    from_flags,
    from_table,
    option,
)
from exporter.vocabulary import Layout, renamed


@dataclass(frozen=True, kw_only=True)
class Example(Settings):
    rho: Share | None = option(None, "A share.")
    alpha: Weight = option(0.5, "A weight.")
    count: Positive = option(3, "A count.")
    least: Natural = option(0, "A count from 0.")
    anything: float = option(0.0, "A number without limits.")
    word: str = option("a", "A word.", ("a", "b"))
    layout: Layout | None = option(None, "An enum.")
    batches: Batches = option((1, 2), "A list.")
    pair: tuple[float, float] = option((0.5, 1.0), "Two numbers.")
    place: Path | None = option(None, "A path.")
    named: dict[str, Any] = option({}, "Names.")
    shares: dict[int, Share] = option({}, "Shares.")
    really: bool = option(False, "A switch.")


def parse(*flags: str) -> Example:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, Example)
    return from_flags(Example, parser.parse_args(flags))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rho": 1.7}, "rho | got 1.7 | need a number in (0, 1]"),
        ({"rho": math.nan}, "rho | got nan | need a number in (0, 1]"),
        ({"rho": 10**400}, "rho | got 1000000000"),
        ({"anything": math.nan}, "anything | got nan | need a finite number"),
        ({"anything": math.inf}, "anything | got inf | need a finite number"),
        ({"anything": "5"}, "anything | got '5' | need float"),
        ({"pair": (0.5, math.inf)}, "need a finite number"),
        ({"pair": (0.5,)}, "pair | got (0.5,)"),
        ({"alpha": -0.1}, "alpha | got -0.1 | need a number in [0, 1]"),
        ({"count": 0}, "count | got 0 | need an integer from 1 to"),
        ({"count": 2**31}, "count | got 2147483648 | need an integer from 1 to 2147483647"),
        ({"count": 2.5}, "count | got 2.5"),
        ({"count": True}, "count | got True"),
        ({"word": "c"}, "word | got 'c' | need one of a, b"),
        ({"layout": "folded"}, "layout | got 'folded' | need one of shrinking, packed, padded"),
        ({"batches": ()}, "batches | got ()"),
        ({"batches": (1, 0)}, "batches | got (1, 0) | need an integer from 1"),
        ({"place": 3}, "place | got 3"),
        ({"named": [1]}, "named | got [1]"),
        ({"shares": {1: 1.5}}, "shares | got {1: 1.5} | need a number in (0, 1]"),
        ({"really": "yes"}, "really | got 'yes' | need bool"),
    ],
)
def test_a_value_of_another_kind_is_refused_as_it_is_given(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Example(**values)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_values_become_those_of_their_types() -> None:
    example = Example(layout="packed", place="a/b", batches=[4], rho=1)  # type: ignore[arg-type]
    assert example.layout is Layout.PACKED
    assert (example.place, example.batches) == (Path("a/b"), (4,))
    assert type(example.rho) is float


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


def test_names_of_0_1_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse("--flavour", "padded") == parse("--layout", "padded")
    assert from_table(Example, {"flavour": "padded"}, "r.toml") == {"layout": Layout.PADDED}
    assert renamed({"tile": 4, "layout": 1}, ("round_to", "layout")) == {"round_to": 4, "layout": 1}
    assert renamed({"tile": 4}, ("tile", "round_to")) == {"tile": 4}
    with pytest.raises(SystemExit):
        main(["compile", "--help"])
    assert "--flavour" not in capsys.readouterr().out
