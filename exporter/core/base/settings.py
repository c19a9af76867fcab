"""Declare settings, alone or in sections, with types that have limits; convert and check their values.

msgspec does both, as it does for records. It is strict, while cattrs converts "5" and 5.7 to 5, and it checks
limits in the same step; it has no dependency and is imported in 17 ms (cattrs: 27 ms). It accepts infinity within a
one-sided limit, and NaN without limits: every number of settings has two limits. To it, numbers of other libraries
are none: they become Python's first. Errors quote the description of a limit.
"""

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import EnumMeta
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from exporter.core.base.errors import SHORT, RecipeError
from exporter.core.base.files import path_of

# With fewer timed rounds, a quartile depends on a single round.
LEAST_ROUNDS = 5

# The largest integer that all libraries used here accept, and the largest finite number.
MOST = 2**31 - 1
LARGEST = sys.float_info.max

Positive = Annotated[
    int, Meta(ge=1, le=MOST, description=f"an integer from 1 to {MOST}")
]
Natural = Annotated[
    int, Meta(ge=0, le=MOST, description=f"an integer from 0 to {MOST}")
]
# Images that are in memory together: more than any machine gains by.
Batch = Annotated[int, Meta(ge=1, le=4096, description="an integer from 1 to 4096")]
BatchSizes = Annotated[tuple[Batch, ...], Meta(min_length=1)]
Count = Annotated[
    Positive | Literal["auto"],
    Meta(description=f"an integer from 1 to {MOST}, or auto"),
]
# More threads or processes than any machine serves would stop it.
Threads = Annotated[int, Meta(ge=0, le=1024, description="an integer from 0 to 1024")]
# A server keeps memory for its largest batch and each instance, and a request for as long as it waits.
ServedBatch = Annotated[
    int, Meta(ge=1, le=65_536, description="an integer from 1 to 65536")
]
Instances = Annotated[int, Meta(ge=1, le=1024, description="an integer from 1 to 1024")]
Microseconds = Annotated[
    int,
    Meta(ge=0, le=60_000_000, description="an integer from 0 to 60000000, a minute"),
]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST, description="a finite number")]
Points = Annotated[
    float, Meta(gt=0, lt=100, description="a number of percentage points in (0, 100)")
]
Above0 = Annotated[float, Meta(gt=0, le=LARGEST, description="a number above 0")]
Share = Annotated[float, Meta(gt=0, le=1, description="a number in (0, 1]")]
Weight = Annotated[float, Meta(ge=0, le=1, description="a number in [0, 1]")]


class Settings:
    """Base class of settings: values are converted to the types of their fields and checked on creation.

    A field that is not declared by `option` is no setting: it has no flag and no key, and is taken as it is.
    """

    def __post_init__(self) -> None:
        """Raise RecipeError, which names the field, for a value of the wrong type or out of range."""
        for name, field in fields_of(type(self)).items():
            object.__setattr__(
                self, name, field.converted(field.key, getattr(self, name))
            )
        self.check()

    def check(self) -> None:
        """Raise RecipeError for values that contradict each other."""

    def require(self, name: str, holds: bool, expected: str) -> None:
        """Raise RecipeError, which names the field, unless its value suits those of the other fields."""
        if not holds:
            raise RecipeError(name, SHORT.repr(getattr(self, name)), expected)


def option(
    default: Any,
    help: str,  # noqa: A002
    choices: Iterable[str] = (),
    group: str = "",
    *,
    flag: bool | str = True,
) -> Any:
    """Declare a field of settings.

    Args:
        default: Its default.
        help: Its help text.
        choices: Its allowed words if its type is no enum.
        group: The group of its flag, one of the command line's `GROUPS`; "" for a verb's main flags.
        flag: Whether commands have a flag for it; if not, it is a key of a recipe alone. A text is the name of the
            flag where that is not the field's.
    """
    metadata = {"help": help, "choices": tuple(choices), "group": group, "flag": flag}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Field:
    """A field of settings: `kind` is its type with limits, `plain` the bare type, `words` those that it accepts.

    `key` is its name among flags.
    """

    def __init__(self, declared: "dataclasses.Field[Any]", kind: Any) -> None:
        self.help: str = declared.metadata.get("help", "")
        self.default: Any = declared.default
        self.group: str = declared.metadata.get("group", "")
        flag = declared.metadata.get("flag", True)
        self.has_flag = bool(flag)
        self.key = flag if isinstance(flag, str) else declared.name
        self.words: tuple[str, ...] = declared.metadata.get("choices", ())
        # The default is one of the words, or None.
        self.kind = self.plain = (
            Literal[(*self.words, declared.default)] if self.words else kind
        )
        while typing.get_origin(self.plain) in (
            typing.Union,
            types.UnionType,
            Annotated,
        ):
            kinds = (
                arm for arm in typing.get_args(self.plain) if arm is not type(None)
            )
            self.plain = next(kinds)
        if isinstance(self.plain, EnumMeta):
            self.words = tuple(self.plain)

    def converted(self, subject: str, value: Any) -> Any:
        """Return the value converted to the field's type."""
        try:
            value = as_python(value)
            # msgspec knows all types of settings but paths.
            return msgspec.convert(
                value, self.kind, dec_hook=lambda _, text: path_of(text), str_keys=True
            )
        except (ValueError, OverflowError, RecursionError) as error:
            expected = (
                f"one of {', '.join(self.words)}"
                if self.words
                else _described(self.kind)
            )
            bare = (
                str(error).removeprefix("Expected ").replace("`", "").split(", got")[0]
            )
            raise RecipeError(subject, SHORT.repr(value), expected or bare) from None


def as_python(value: Any) -> Any:
    """Return a scalar, array or tensor, alone or in containers, as Python's numbers; other values as they are."""
    if isinstance(value, Mapping):
        return {as_python(key): as_python(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(as_python, value))
    if isinstance(value, list):
        return [*map(as_python, value)]
    return value.tolist() if hasattr(value, "tolist") else value


ResultT = TypeVar("ResultT")


def _cached(function: Callable[[type], ResultT]) -> Callable[[type], ResultT]:
    """Cache a function of a class; mypy would take classes of settings for unhashable."""
    return cache(function)


@_cached
def fields_of(settings: type) -> Mapping[str, Field]:
    """Return the fields of settings by name."""
    kinds = typing.get_type_hints(settings, include_extras=True)
    declared = (
        field for field in dataclasses.fields(settings) if "help" in field.metadata
    )
    return {field.name: Field(field, kinds[field.name]) for field in declared}


def from_table(
    settings: type[Settings], table: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """Return the values of a TOML table, checked against the fields of settings."""
    known, values = fields_of(settings), {}
    for key, value in table.items():
        if key not in known:
            raise RecipeError(
                f"{source} {key}", "an unknown key", f"one of {', '.join(known)}"
            )
        values[key] = known[key].converted(f"{source} {key}", value)
    return values


def _described(kind: Any) -> str:
    """Return the description of the first limit within a type, or ""."""
    for limit in getattr(kind, "__metadata__", ()):
        if description := getattr(limit, "description", None):
            return str(description)
    return next(filter(None, map(_described, typing.get_args(kind))), "")


SectionsT = TypeVar("SectionsT", bound="Sections")

# Values by key, for each section by name: the tables of a TOML file.
Tables = Mapping[str, Mapping[str, Any]]


class Sections:
    """Base class of records whose fields are settings: each is a section, and a table of its name in TOML."""

    @classmethod
    def of(cls: type[SectionsT], tables: Tables) -> SectionsT:
        """Return the record of the values in tables; RecipeError if one contradicts another."""
        sections = sections_of(cls).items()
        return cls(
            **{name: settings(**tables.get(name, {})) for name, settings in sections}
        )

    def but(self: SectionsT, **tables: Mapping[str, Any]) -> SectionsT:
        """Return the record with other values in some sections, e.g. `but(prune={"rho": 0.5})`."""
        sections = {
            name: dataclasses.replace(getattr(self, name), **values)
            for name, values in tables.items()
        }
        record: Any = self  # a dataclass is made of it
        return dataclasses.replace(record, **sections)

    def changes(self) -> dict[str, dict[str, Any]]:
        """Return the values that differ from their defaults, by section and key."""
        return {
            name: changes_of(getattr(self, name)) for name in sections_of(type(self))
        }


def changes_of(settings: Settings) -> dict[str, Any]:
    """Return the values that differ from their defaults, by name."""
    changes = {}
    for name, field in fields_of(type(settings)).items():
        value = getattr(settings, name)
        if value not in (field.default, None, {}):
            changes[name] = value
    return changes


@_cached
def sections_of(record: type) -> Mapping[str, type[Settings]]:
    """Return the classes of the sections by name."""
    kinds = typing.get_type_hints(record)
    return {field.name: kinds[field.name] for field in dataclasses.fields(record)}


def from_tables(
    record: type, tables: Mapping[str, Any], source: str
) -> dict[str, dict[str, Any]]:
    """Return the values of TOML tables, checked against the fields of the sections of their names."""
    values = {}
    for name, table in tables.items():
        if name not in sections_of(record) or not isinstance(table, Mapping):
            raise _misplaced(record, name, table, source)
        section = sections_of(record)[name]
        for key in table:
            homes = "" if key in fields_of(section) else _homes_in_toml(record, key)
            if homes:
                raise RecipeError(
                    f"{source} [{name}] {key}", "a key of another table", homes
                )
        values[name] = from_table(section, table, f"{source} [{name}]")
    return values


def homes_of(sections: Mapping[str, type[Settings]], key: str) -> list[tuple[str, str]]:
    """Return the section and the name of each field that has a key, or a flag of that name."""
    homes = []
    for section, settings in sections.items():
        for name, field in fields_of(settings).items():
            if key in (name, field.key):
                homes.append((section, name))
    return homes


def _homes_in_toml(record: type, key: str) -> str:
    homes = homes_of(sections_of(record), key)
    return " or ".join(f"[{section}] {name}" for section, name in homes)


def _misplaced(record: type, name: str, value: Any, source: str) -> RecipeError:
    """Return the refusal of a key outside a table, or of a table that is none."""
    if homes := _homes_in_toml(record, name):
        return RecipeError(f"{source} {name}", "a key outside its table", homes)
    if name in sections_of(record):
        return RecipeError(f"{source} {name}", SHORT.repr(value), f"a table, [{name}]")
    known = ", ".join(f"[{section}]" for section in sections_of(record))
    return RecipeError(
        f"{source} {name}", "an unknown key", f"one of the tables {known}"
    )
