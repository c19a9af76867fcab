"""Derive argparse's flags from the fields of settings, and settings from the flags given."""

import argparse
import ast
import dataclasses
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from exporter.cli.parser import Parser
from exporter.core.base.errors import SHORT, RecipeError
from exporter.core.base.settings import (
    Field,
    Sections,
    Settings,
    fields_of,
    homes_of,
    sections_of,
)

SET = "--set"

SettingsT = TypeVar("SettingsT", bound=Settings)

# The arguments of argparse's `add_argument` by the type of a field.
ARGUMENTS: Mapping[Any, Mapping[str, Any]] = {
    bool: {"action": argparse.BooleanOptionalAction},
    int: {"metavar": "N"},
    float: {"metavar": "X"},
    str: {"metavar": "NAME"},
    Path: {"metavar": "PATH"},
    dict: {"metavar": "NAME=VALUE", "nargs": "+"},
    tuple: {"metavar": "A,B,…"},
}

# What people write for the values that have a name; TOML and JSON have the first of them.
NAMED: Mapping[str, bool | None] = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
    **dict.fromkeys(("none", "null"), None),
}
# Any other text starts with a letter: what starts otherwise is a number, a list or a quotation that is misspelt.
TEXT = re.compile(r"(?!\d)\w.*|", re.DOTALL)
NO_NUMBERS = ("nan", "inf", "infinity")
A_VALUE = "a number, true or false, none, a list such as (1, 2), or a text that starts with a letter"


def add_flags(
    parser: Any,
    settings: type[Settings] | type[Sections],
    names: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    table: str = "",
) -> None:
    """Add a flag for each field of settings that has one, or for those named, in that order.

    An unused flag adds nothing to the namespace, so the recipe's value applies.

    Args:
        parser: A `Parser`, which shows each flag in the group of its field; or one group for all of them.
        settings: Whose fields become flags.
        names: Of these flags; by default all but those that are keys of a recipe alone.
        defaults: What the help shows as the default of a flag, where the verb has another one.
        table: The table of a recipe that has the same settings.
    """
    places, defaults = _by_flag(settings, table), defaults or {}
    with_flag = [name for name, (_, field) in places.items() if field.has_flag]
    for name in with_flag if names is None else names:
        place, field = places[name]
        group = parser.group(field.group) if isinstance(parser, Parser) else parser
        options = {"dest": place, "default": argparse.SUPPRESS, **_arguments(field)}
        text = _help(field, defaults.get(name, field.default))
        action = group.add_argument(_flag(name), help=text, **options)
        if field.words:
            # What argcomplete asks for the words of a flag; `choices` would refuse others before `from_flags` does.
            action.completer = partial(_words, field.words)


class SetAction(argparse.Action):
    """Set one value of a table, as `--set prune.alpha=0.3`; of a dictionary one entry, as `prune.rates.4=0.7`.

    `tables` are the tables' settings by name. A flag of the same setting, where it comes later, stands over it.
    """

    def __init__(self, *, tables: Mapping[str, type[Settings]], **options: Any) -> None:
        super().__init__(
            default=argparse.SUPPRESS, metavar="TABLE.KEY=VALUE", **options
        )
        self.tables = tables

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        text: Any,
        _flag: str | None = None,
    ) -> None:
        """Put the value where the setting's own flag would."""
        path, equals, word = text.partition("=")
        table, _, key = path.partition(".")
        name, _, entry = key.partition(".")
        subject, place = f"{SET} {path}", _place(table, name)
        field = by_place(self.tables).get(place)
        if field is None:
            expected = _nearest(self.tables, path)
            raise RecipeError(subject, "an unknown setting", expected)
        if not equals or bool(entry) != _is_dict(field):
            expected = f"{place}.NAME=VALUE" if _is_dict(field) else f"{place}=VALUE"
            raise RecipeError(SET, SHORT.repr(text), expected)
        if entry:
            words = [*getattr(namespace, place, ()), f"{entry}={word}"]
            _value(subject, field, words)
            setattr(namespace, place, words)
        else:
            setattr(namespace, place, _value(subject, field, word))


def _nearest(tables: Mapping[str, type[Settings]], path: str) -> str:
    """Return where the key of an unknown setting belongs, or else the settings whose names are nearest."""
    homes = homes_of(tables, path.rpartition(".")[2])
    if homes:
        return " or ".join(_place(*home) for home in homes)
    near = get_close_matches(path, by_place(tables))
    return " or ".join(near) if near else f"TABLE.KEY of the tables {', '.join(tables)}"


def from_flags(
    settings: type[SettingsT],
    arguments: argparse.Namespace,
    base: Mapping[str, Any] | None = None,
    table: str = "",
) -> SettingsT:
    """Return the settings of the given flags, which override those of `base`; `table` as of `add_flags`."""
    return settings(**{**(base or {}), **_given(settings, arguments, table)})


def tables_from_flags(
    record: type[Sections], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the values of the given flags, by section and key."""
    sections = sections_of(record).items()
    return {name: _given(settings, arguments, name) for name, settings in sections}


def by_place(tables: Mapping[str, type[Settings]]) -> dict[str, Field]:
    """Return the settings of tables by where arguments have them, as `prune.rho`."""
    places = {}
    for table, settings in tables.items():
        for name, field in fields_of(settings).items():
            places[_place(table, name)] = field
    return places


def flag_of(record: type[Sections], place: str) -> str:
    """Return what sets a setting of a section: its flag, or `--set` with its place."""
    field = by_place(sections_of(record))[place]
    return _flag(field.key) if field.has_flag else f"{SET} {place}"


def _given(
    settings: type[Settings], arguments: argparse.Namespace, table: str
) -> dict[str, Any]:
    words, values = vars(arguments), {}
    for name, field in fields_of(settings).items():
        place = _place(table, name)
        if place in words:
            values[name] = _value(_flag(field.key), field, words[place])
    return values


def _place(table: str, name: str) -> str:
    """Return where arguments have a value: e.g. `prune.rho`, or a bare name of settings that are no table."""
    return f"{table}.{name}" if table else name


def _by_flag(
    settings: type[Settings] | type[Sections], table: str = ""
) -> dict[str, tuple[str, Field]]:
    """Return the place and the field of each flag."""
    if not issubclass(settings, Sections):
        fields = fields_of(settings).items()
        return {field.key: (_place(table, name), field) for name, field in fields}
    places = by_place(sections_of(settings))
    return {
        field.key: (place, field) for place, field in places.items() if field.has_flag
    }


def _help(field: Field, default: Any) -> str:
    text = ",".join(map(str, default if isinstance(default, tuple) else (default,)))
    has_none = default in (None, "", (), dataclasses.MISSING)
    return (field.help if has_none else f"{field.help} Default: {text}.").replace(
        "%", "%%"
    )


def _words(words: Sequence[str], **_: Any) -> Sequence[str]:
    return words


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _arguments(field: Field) -> Mapping[str, Any]:
    if field.words:
        return {"metavar": f"{{{','.join(field.words)}}}"}
    origin = typing.get_origin(field.plain) or field.plain
    items = typing.get_args(field.plain)
    if origin is tuple and Ellipsis not in items:
        return {"metavar": "X", "nargs": len(items)}
    if origin is dict and _has_numbers(items[0]):
        return {**ARGUMENTS[dict], "metavar": "LAYER=RATE"}
    return ARGUMENTS[origin]


def _value(flag: str, field: Field, words: Any) -> Any:
    """Return the value of a flag's words, or the one that `--set` has read; RecipeError names the flag."""
    if _is_dict(field):
        # A keyword argument may override an earlier one; two rates for one layer are a mistake.
        of_any = Any in typing.get_args(field.plain)
        count, words = len(words), _pairs(flag, words, _any if of_any else _plain)
        if len(words) < count and not of_any:
            raise RecipeError(flag, "a name twice", "each name once")
        return field.converted(flag, words)
    if typing.get_origin(field.plain) is tuple and isinstance(words, str):
        words = [word for word in words.split(",") if word]
    if field.plain is bool and isinstance(words, str):
        words = NAMED.get(words.lower(), words)
    if _has_numbers(field.kind) and isinstance(words, str | list):
        words = _plain(words) if isinstance(words, str) else list(map(_plain, words))
    return field.converted(flag, words)


def _is_dict(field: Field) -> bool:
    return typing.get_origin(field.plain) is dict


def _has_numbers(kind: Any) -> bool:
    return kind in (int, float) or any(map(_has_numbers, typing.get_args(kind)))


def _pairs(
    flag: str, texts: Sequence[str], read: Callable[[str], Any]
) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise RecipeError(flag, repr(text), "NAME=VALUE, e.g. img_size=32")
        try:
            pairs[name] = read(value)
        except ValueError:
            raise RecipeError(f"{flag} {name}", SHORT.repr(value), A_VALUE) from None
    return pairs


def _plain(word: str) -> int | float | str:
    """Return the number that a word is to Python, which also reads .7 and 1_000; other words as they are."""
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(word)
            return number if abs(number) < math.inf else word
    return word


def _any(word: str) -> Any:
    """Return the value of a word where any kind is taken; ValueError for what is no value, and no text either."""
    value = NAMED.get(word.lower(), _plain(word))
    if value is not word:
        return value
    with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        literal = ast.literal_eval(word)
        if isinstance(literal, str | int | tuple | list):  # 1e400 is infinity
            return literal
    if TEXT.fullmatch(word) and word.lower() not in NO_NUMBERS:
        return word
    raise ValueError(word)
