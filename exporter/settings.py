"""Settings declared once: a frozen dataclass gives the defaults, the flags, the help and the TOML keys."""

import argparse
import ast
import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from exporter.errors import RecipeError

__all__ = ["add_flags", "from_flags", "from_table", "option"]

SettingsT = TypeVar("SettingsT")


def option(default: Any, help: str, choices: Sequence[str] | None = None) -> Any:  # noqa: A002
    """A field of a settings record: its default, its help in one sentence, and what it may be."""
    metadata = {"help": help, "choices": choices}
    if default is dataclasses.MISSING:
        return field(metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def add_flags(parser: Any, settings: type, names: Iterable[str] | None = None) -> None:
    """Give `parser` a flag for each field of a settings record, or for those named, in that order.

    A flag that is not used leaves nothing in the namespace, so that a recipe's value can stand.
    """
    hints = typing.get_type_hints(settings)
    fields = {each.name: each for each in dataclasses.fields(settings)}
    for name in fields if names is None else names:
        each, kind = fields[name], _without_none(hints[name])
        given: dict[str, Any] = {
            "default": argparse.SUPPRESS,
            "help": each.metadata["help"].replace("%", "%%"),
        }
        if each.default not in (None, (), dataclasses.MISSING):
            given["help"] += f" Default: {_shown(each.default, kind)}."
        if kind is bool:
            given["action"] = argparse.BooleanOptionalAction
        elif _is_list(kind):
            given |= {"type": _list_of(typing.get_args(kind)[0]), "metavar": "A,B,…"}
        elif typing.get_origin(kind) is tuple:
            given |= {"type": float, "nargs": len(typing.get_args(kind))}
        elif typing.get_origin(kind) is dict:
            given |= {"nargs": "+", "metavar": "NAME=VALUE"}
        else:
            given |= {"type": kind, "choices": each.metadata["choices"]}
            given |= {} if each.metadata["choices"] else {"metavar": _METAVARS.get(kind, "VALUE")}
        parser.add_argument("--" + name.replace("_", "-"), **given)


def from_flags(
    settings: type[SettingsT], arguments: argparse.Namespace, base: Mapping[str, Any] | None = None
) -> SettingsT:
    """The settings that flags mean, over those of `base` (a recipe's table, already checked).

    Raises:
        RecipeError: A value is missing, or a pair is not `name=value`.
    """
    hints = typing.get_type_hints(settings)
    given: dict[str, Any] = dict(base or {})
    for name, value in vars(arguments).items():
        if name in hints:
            is_pairs = typing.get_origin(_without_none(hints[name])) is dict
            given[name] = (
                _pairs(name, value) if is_pairs else tuple(value) if isinstance(value, list) else value
            )
    return _made(settings, given)


def from_table(settings: type, table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of a TOML table, checked against the fields of a settings record.

    Raises:
        RecipeError: A key is unknown or a value is of the wrong type; `source` and the key are named.
    """
    hints = typing.get_type_hints(settings)
    choices = {each.name: each.metadata["choices"] for each in dataclasses.fields(settings)}
    values = {}
    for key, value in table.items():
        if key not in hints:
            raise RecipeError(f"{source}: {key}", "an unknown key", f"one of {', '.join(hints)}")
        kind = _without_none(hints[key])
        plain = typing.get_origin(kind) or kind
        if isinstance(kind, type) and issubclass(kind, Enum) and value in tuple(kind):
            value = kind(value)  # noqa: PLW2901
        if (
            plain in (float, Path)
            and isinstance(value, int if plain is float else str)
            and not isinstance(value, bool)
        ):
            value = plain(value)  # noqa: PLW2901
        if plain is tuple and isinstance(value, list):
            value = tuple(value)  # noqa: PLW2901
            if not all(isinstance(each, int | float) for each in value):
                raise RecipeError(f"{source}: {key}", repr(value), "a list of numbers")
        if not isinstance(value, plain) or (plain is not bool and isinstance(value, bool)):
            raise RecipeError(f"{source}: {key}", repr(value), f"a {plain.__name__}")
        if choices[key] and value not in choices[key]:
            raise RecipeError(f"{source}: {key}", repr(value), f"one of {', '.join(choices[key])}")
        values[key] = value
    return values


_METAVARS = {Path: "PATH", int: "N", float: "X", str: "NAME"}


def _made(settings: type[SettingsT], given: dict[str, Any]) -> SettingsT:
    required = [
        each.name
        for each in dataclasses.fields(settings)  # type: ignore[arg-type]
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]
    for name in required:
        if name not in given:
            raise RecipeError(f"--{name.replace('_', '-')}", "nothing", "a value")
    return settings(**given)


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise RecipeError(f"--{flag.replace('_', '-')}", repr(text), "NAME=VALUE, e.g. img_size=32")
        try:
            pairs[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            pairs[name] = value
    return pairs


def _is_list(kind: Any) -> bool:
    """A tuple of any length, whose flag is one word with commas."""
    return typing.get_origin(kind) is tuple and typing.get_args(kind)[-1] is Ellipsis


def _list_of(kind: type) -> Callable[[str], tuple[Any, ...]]:
    def values(text: str) -> tuple[Any, ...]:
        return tuple(kind(each) for each in text.split(",") if each)

    # argparse names the type of a value that it refuses.
    values.__name__ = f"list of {kind.__name__}"
    return values


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(each for each in typing.get_args(kind) if each is not type(None))
    return kind


def _shown(value: Any, kind: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return ("," if _is_list(kind) else " ").join(map(str, value))
