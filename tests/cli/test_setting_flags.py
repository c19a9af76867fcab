"""Flags made from settings, and the parser's help."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.parser import GROUPS
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.errors import RecipeError
from exporter.core.base.settings import Settings, fields_of
from exporter.core.base.vocabulary import Layout
from exporter.core.schedule.prune import Prune
from tests.core.base.every import every_settings
from tests.core.base.example import Example, parse


def test_flags_are_read_as_the_types_of_their_fields() -> None:
    line = (
        "--rho 0.7 --count 1_000 --batches 1,8 --pair 0.25 2 --layout padded --place x"
    )
    more = "--named a=1 b=c d=(1,2) --really --word b"
    example = parse(*line.split(), *more.split())
    assert example == Example(
        rho=0.7,
        count=1000,
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
        (("--count", "9" * 5000), "--count | got '9999"),
        (("--batches", "1,x"), "--batches | got [1, 'x']"),
        (("--pair", "nan", "1"), "--pair | got ['nan', 1] | need a finite number"),
        (("--rho", "70%"), "--rho | got '70%' | need a number in (0, 1]"),
        (("--count", "1e3"), "--count | got 1000.0 | need an integer from 1"),
        (("--named", "32"), "--named | got '32' | need NAME=VALUE"),
        (
            ("--shares", "1=0.5", "1=0.7"),
            "--shares | got a name twice | need each name once",
        ),
    ],
)
def test_wrong_flags_are_refused_in_one_line(
    flags: tuple[str, ...], message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        parse(*flags)
    assert message in str(caught.value)


def _forms(number: float) -> st.SearchStrategy[str]:
    """How Python and people write a number: .7, 7e-1, +0.7, 1_000."""
    written = {repr(number), f"{number:.17e}", f"{number:.17E}", f"{number:+.17g}"}
    # all digits of the smallest number
    whole, _, rest = f"{number:.1080f}".partition(".")
    if int(whole) == 0 and int(rest):
        written.add(f"{whole[:-1]}.{rest.rstrip('0')}")
    if int(rest) == 0:
        written |= {f"{whole}.", f"{int(whole):_}.0"}
    return st.sampled_from(sorted(written))


@given(
    st.floats(allow_nan=False, allow_infinity=False).flatmap(
        lambda x: st.tuples(st.just(x), _forms(x))
    )
)
def test_a_number_is_read_as_python_reads_it_however_it_is_written(
    told: tuple[float, str],
) -> None:
    number, text = told
    assert float(text) == number
    example = parse(
        f"--anything={text}",
        f"--sweep={text},{text}",
        "--named",
        f"a={text}",
        f"b=[{text}]",
    )
    assert (example.anything, example.sweep) == (number, (number, number))
    assert example.named == {"a": number, "b": [number]}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("true", "True", "TRUE", "yes", "on"), True),
        (("false", "False", "no", "Off"), False),
        (("none", "None", "null"), None),
        (("(1,2)", "1,2", "(1, 2)"), (1, 2)),
        (("[.5, 1e-4]",), [0.5, 1e-4]),
        (("token",), "token"),
        (("",), ""),
        (("'none'", '"none"'), "none"),
        (("layer:-2",), "layer:-2"),
    ],
)
def test_values_of_any_kind(words: tuple[str, ...], value: object) -> None:
    for word in words:
        (read,) = parse("--named", f"a={word}").named.values()
        assert (read, type(read)) == (value, type(value))


@given(st.from_regex(r"\A[-+.0-9(\[{'\"%]\S{0,6}\Z"))
def test_what_starts_like_no_text_is_a_value_or_refused(word: str) -> None:
    try:
        read = parse("--named", f"a={word}").named["a"]
    except RecipeError as error:
        assert str(error).startswith("--named a | got ")
    else:
        assert not isinstance(read, str) or word[0] in "'\""


@pytest.mark.parametrize(
    "word",
    [
        "1e-",
        "(1,",
        "[1",
        "70%",
        "224x224",
        "nan",
        "1e400",
        "{1: 2}",
        "1j",
        "'a",
        "-inf",
        "NaN",
    ],
)
def test_what_is_nearly_a_value_is_no_text(word: str) -> None:
    with pytest.raises(
        RecipeError,
        match=r"--named a \| got .* \| need a number, true or false, none, a list",
    ):
        parse("--named", f"a={word}")


@pytest.mark.parametrize(
    "shown",
    [
        "--rho X A share. --",
        "--word {a,b} A word. Default: a.",
        "--layout {shrinking,packed,padded} An enum. --",
        "--batches A,B,… A list. Default: 1,2.",
        "--named NAME=VALUE [NAME=VALUE ...] Names. --",
        "--really, --no-really A switch. Default: False.",
    ],
)
def test_the_help_of_each_kind(shown: str) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Example)
    assert shown in " ".join(parser.format_help().split("options:")[1].split())


def test_a_field_without_a_flag_gets_one_by_name_alone() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Prune)
    assert "--method" in parser.format_help() and "--alpha" not in parser.format_help()
    parser = argparse.ArgumentParser()
    add_flags(parser, Prune, ("alpha",))
    assert from_flags(Prune, parser.parse_args(["--alpha", "0.5"])).alpha == 0.5


@pytest.mark.parametrize("settings", every_settings(), ids=lambda each: each.__name__)
def test_groups_are_known(settings: type[Settings]) -> None:
    assert {field.group for field in fields_of(settings).values()} <= {"", *GROUPS}
