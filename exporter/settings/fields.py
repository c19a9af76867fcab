"""Declare settings, alone or in sections, with types that have limits; convert and check their values.

msgspec does both, as it does for records. It is strict, while cattrs converts "5" and 5.7 to 5, and it checks
limits in the same step; it has no dependency and is imported in 17 ms (cattrs: 27 ms). It accepts infinity within a
one-sided limit, and NaN without limits: every number of settings has two limits. Errors quote the description of a
limit.
"""

import dataclasses
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import EnumMeta
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from exporter.errors import RecipeError
from exporter.files import path_of

# The largest integer that all libraries used here accept, and the largest finite number.
MOST = 2**31 - 1
LARGEST = sys.float_info.max

Positive = Annotated[int, Meta(ge=1, le=MOST, description=f"an integer from 1 to {MOST}")]
Natural = Annotated[int, Meta(ge=0, le=MOST, description=f"an integer from 0 to {MOST}")]
BatchSizes = Annotated[tuple[Positive, ...], Meta(min_length=1)]
Count = Annotated[
    Positive | Literal["auto"], Meta(description=f"an integer from 1 to {MOST}, or auto")
]
# More threads or processes than any machine serves would stop it.
Threads = Annotated[int, Meta(ge=0, le=1024, description="an integer from 0 to 1024")]
# A server keeps memory for its largest batch and each instance, and a request for as long as it waits.
ServedBatch = Annotated[int, Meta(ge=1, le=65_536, description="an integer from 1 to 65536")]
Instances = Annotated[int, Meta(ge=1, le=1024, description="an integer from 1 to 1024")]
Microseconds = Annotated[
    int, Meta(ge=0, le=60_000_000, description="an integer from 0 to 60000000, a minute")
]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST, description="a finite number")]
Points = Annotated[
    float, Meta(gt=0, lt=100, description="a number of percentage points in (0, 100)")
]
Share = Annotated[float, Meta(gt=0, le=1, description="a number in (0, 1]")]
Weight = Annotated[float, Meta(ge=0, le=1, description="a number in [0, 1]")]


# The groups of flags in a verb's help, in this order.
GROUPS = (
    "model",
    "images",
    "how much to prune",
    "how to prune",
    "target",
    "measurement",
    "training",
    "advanced",
)

# Long values are shortened in errors.
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxlong = SHORT.maxother = 60


class Settings:
    """Base class of settings: values are converted to the types of their fields and checked on creation.

    A field that is not declared by `option` is no setting: it has no flag and no key, and is taken as it is.
    """

    def __post_init__(self) -> None:
        """Raise RecipeError, which names the field, for a value of the wrong type or out of range."""
        for name, each in fields_of(type(self)).items():
            object.__setattr__(self, name, each.converted(each.key, getattr(self, name)))
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
        group: The group of its flag, one of `GROUPS`; "" for a verb's main flags.
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
        self.has_flag, self.key = bool(flag), flag if isinstance(flag, str) else declared.name
        self.words: tuple[str, ...] = declared.metadata.get("choices", ())
        # The default is one of the words, or None.
        self.kind = self.plain = (
            Literal[(*self.words, declared.default)] if self.words else kind
        )
        while typing.get_origin(self.plain) in (typing.Union, types.UnionType, Annotated):
            self.plain = next(
                each for each in typing.get_args(self.plain) if each is not type(None)
            )
        if isinstance(self.plain, EnumMeta):
            self.words = tuple(self.plain)

    def converted(self, subject: str, value: Any) -> Any:
        """Return the value converted to the field's type."""
        try:
            # msgspec knows all types of settings but paths.
            return msgspec.convert(
                value, self.kind, dec_hook=lambda _, text: path_of(text), str_keys=True
            )
        except (ValueError, OverflowError, RecursionError) as error:
            expected = (
                f"one of {', '.join(self.words)}" if self.words else _described(self.kind)
            )
            bare = str(error).removeprefix("Expected ").replace("`", "").split(", got")[0]
            raise RecipeError(subject, SHORT.repr(value), expected or bare) from None


FoundT = TypeVar("FoundT")


def _cached(function: Callable[[type], FoundT]) -> Callable[[type], FoundT]:
    """Cache a function of a class; mypy would take classes of settings for unhashable."""
    return cache(function)


@_cached
def fields_of(settings: type) -> Mapping[str, Field]:
    """Return the fields of settings by name."""
    kinds = typing.get_type_hints(settings, include_extras=True)
    declared = (each for each in dataclasses.fields(settings) if "help" in each.metadata)
    return {each.name: Field(each, kinds[each.name]) for each in declared}


def from_table(
    settings: type[Settings], table: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """Return the values of a TOML table, checked against the fields of settings."""
    known, values = fields_of(settings), {}
    for key, value in table.items():
        if key not in known:
            raise RecipeError(f"{source} {key}", "an unknown key", f"one of {', '.join(known)}")
        values[key] = known[key].converted(f"{source} {key}", value)
    return values


def _described(kind: Any) -> str:
    """Return the description of the first limit within a type, or ""."""
    own = [getattr(each, "description", None) for each in getattr(kind, "__metadata__", ())]
    return next(filter(None, (*own, *map(_described, typing.get_args(kind)))), "")


SectionsT = TypeVar("SectionsT", bound="Sections")

# Values by key, for each section by name.
Tables = Mapping[str, Mapping[str, Any]]


class Sections:
    """Base class of records whose fields are settings.

    The keys of flags belong to all sections: a key goes where it has a flag, or if it has none, to every section
    with a field of that name, as a seed does.
    """

    @classmethod
    def of(cls: type[SectionsT], tables: Tables | None = None, /, **values: Any) -> SectionsT:
        """Return the record of some tables, and of values by the keys of flags, which stand over them.

        Raises:
            RecipeError: A key is unknown, or a value is out of range or contradicts another.
        """
        told = {name: dict((tables or {}).get(name, {})) for name in sections_of(cls)}
        for key, value in values.items():
            for section, name in places_of(cls, key):
                told[section][name] = value
        return cls(**{name: kind(**told[name]) for name, kind in sections_of(cls).items()})

    def but(self: SectionsT, **values: Any) -> SectionsT:
        """Return the record with other values, by the keys of flags."""
        changes: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            for section, name in places_of(type(self), key):
                changes.setdefault(section, {})[name] = value
        changed = {
            name: dataclasses.replace(getattr(self, name), **own)
            for name, own in changes.items()
        }
        record: Any = self  # a dataclass is made of it
        return dataclasses.replace(record, **changed)

    def told(self) -> dict[str, dict[str, Any]]:
        """Return the values that differ from their defaults, by section and key."""
        return {name: told_of(getattr(self, name)) for name in sections_of(type(self))}


def told_of(settings: Settings) -> dict[str, Any]:
    """Return the values that differ from their defaults, by name."""
    values = (
        (name, getattr(settings, name), each)
        for name, each in fields_of(type(settings)).items()
    )
    return {
        name: value for name, value, each in values if value not in (each.default, None, {})
    }


@_cached
def sections_of(kind: type) -> Mapping[str, type[Settings]]:
    """Return the classes of the sections by name."""
    kinds = typing.get_type_hints(kind)
    return {each.name: kinds[each.name] for each in dataclasses.fields(kind)}


@_cached
def _places(kind: type) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return where each key belongs: in which sections, and under which name."""
    every = [
        (field.key, field.has_flag, (section, name))
        for section, own in sections_of(kind).items()
        for name, field in fields_of(own).items()
    ]
    with_flag = {key for key, has_flag, _ in every if has_flag}
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for key, has_flag, place in every:
        if has_flag or key not in with_flag:
            found[key] = (*found.get(key, ()), place)
    return found


def places_of(kind: type, key: str) -> tuple[tuple[str, str], ...]:
    """Return the sections that a key of flags belongs to, with its name there; RecipeError for an unknown one."""
    if key not in _places(kind):
        raise RecipeError(key, "an unknown setting", f"one of {', '.join(_places(kind))}")
    return _places(kind)[key]


def flags_of(kind: type) -> Mapping[str, Field]:
    """Return the fields of all sections by their keys; of a key in several, the first."""
    sections = sections_of(kind)
    return {
        key: fields_of(sections[places[0][0]])[places[0][1]]
        for key, places in _places(kind).items()
    }


def from_tables(
    kind: type, tables: Mapping[str, Any], source: str
) -> dict[str, dict[str, Any]]:
    """Return the values of TOML tables, checked against the fields of the sections of their names."""
    found = {}
    for name, table in tables.items():
        if name not in sections_of(kind) or not isinstance(table, Mapping):
            raise _misplaced(kind, name, table, source)
        section = sections_of(kind)[name]
        for key in table:
            if key not in fields_of(section) and homes_of(kind, key):
                where = " or ".join(homes_of(kind, key))
                raise RecipeError(f"{source} [{name}] {key}", "a key of another table", where)
        found[name] = from_table(section, table, f"{source} [{name}]")
    return found


def homes_of(kind: type, key: str) -> list[str]:
    """Return the places of a key in TOML, e.g. "[prune] rho"; the key of a flag also where its name differs."""
    return list(
        dict.fromkeys(
            f"[{section}] {name}"
            for section, own in sections_of(kind).items()
            for name, field in fields_of(own).items()
            if key in (name, field.key)
        )
    )


def _misplaced(kind: type, name: str, value: Any, source: str) -> RecipeError:
    """Return the refusal of a key outside a table, or of a table that is none."""
    homes = homes_of(kind, name)
    if homes:
        return RecipeError(f"{source} {name}", "a key outside its table", " or ".join(homes))
    if name in sections_of(kind):
        return RecipeError(f"{source} {name}", SHORT.repr(value), f"a table, [{name}]")
    known = ", ".join(f"[{each}]" for each in sections_of(kind))
    return RecipeError(f"{source} {name}", "an unknown key", f"one of the tables {known}")
