"""Declare settings, with types that have limits, and convert and check their values.

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
from collections.abc import Iterable, Mapping
from enum import EnumMeta
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from exporter.errors import RecipeError
from exporter.files import path_of

__all__ = [
    "GROUPS",
    "LARGEST",
    "Batches",
    "Count",
    "Field",
    "Instances",
    "Microseconds",
    "Natural",
    "Number",
    "Points",
    "Positive",
    "ServedBatch",
    "Settings",
    "Share",
    "Threads",
    "Weight",
    "fields_of",
    "from_table",
    "option",
    "redeclared",
    "text_of",
]

# The largest integer that all libraries used here accept, and the largest finite number.
MOST = 2**31 - 1
LARGEST = sys.float_info.max

Positive = Annotated[int, Meta(ge=1, le=MOST, description=f"an integer from 1 to {MOST}")]
Natural = Annotated[int, Meta(ge=0, le=MOST, description=f"an integer from 0 to {MOST}")]
Batches = Annotated[tuple[Positive, ...], Meta(min_length=1)]
Count = Annotated[Positive | Literal["auto"], Meta(description=f"an integer from 1 to {MOST}, or auto")]
# More threads or processes than any machine serves would stop it.
Threads = Annotated[int, Meta(ge=0, le=1024, description="an integer from 0 to 1024")]
# A server keeps memory for its largest batch and each instance, and a request for as long as it waits.
ServedBatch = Annotated[int, Meta(ge=1, le=65_536, description="an integer from 1 to 65536")]
Instances = Annotated[int, Meta(ge=1, le=1024, description="an integer from 1 to 1024")]
Microseconds = Annotated[
    int, Meta(ge=0, le=60_000_000, description="an integer from 0 to 60000000, a minute")
]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST, description="a finite number")]
Points = Annotated[float, Meta(gt=0, lt=100, description="a number of percentage points in (0, 100)")]
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


def redeclared(settings: type, name: str, default: Any) -> Any:
    """Declare a field of a base class again, with another default."""
    (field,) = (each for each in dataclasses.fields(settings) if each.name == name)
    told = field.metadata
    return option(default, told["help"], told["choices"], told["group"], flag=told["flag"])


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
        self.kind = self.plain = Literal[(*self.words, declared.default)] if self.words else kind
        while typing.get_origin(self.plain) in (typing.Union, types.UnionType, Annotated):
            self.plain = next(each for each in typing.get_args(self.plain) if each is not type(None))
        if isinstance(self.plain, EnumMeta):
            self.words = tuple(self.plain)

    def converted(self, subject: str, value: Any) -> Any:
        """Return the value converted to the field's type.

        Raises:
            RecipeError: The value has the wrong type or is out of range; the message names `subject`.
        """
        try:
            # msgspec knows all types of settings but paths.
            return msgspec.convert(value, self.kind, dec_hook=lambda _, text: path_of(text), str_keys=True)
        except (ValueError, OverflowError, RecursionError) as error:
            expected = f"one of {', '.join(self.words)}" if self.words else _described(self.kind)
            bare = str(error).removeprefix("Expected ").replace("`", "").split(", got")[0]
            raise RecipeError(subject, SHORT.repr(value), expected or bare) from None


def fields_of(settings: type) -> Mapping[str, Field]:
    """Return the fields of settings by name."""
    return _fields_of(settings)


@cache  # apart, since mypy takes classes of settings for unhashable
def _fields_of(settings: Any) -> Mapping[str, Field]:
    kinds = typing.get_type_hints(settings, include_extras=True)
    declared = (each for each in dataclasses.fields(settings) if "help" in each.metadata)
    return {each.name: Field(each, kinds[each.name]) for each in declared}


def text_of(value: Any) -> str:
    """Return a value as an error quotes it."""
    return SHORT.repr(value)


def from_table(settings: type[Settings], table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the values of a TOML table, checked against the fields of settings.

    Raises:
        RecipeError: A key is unknown or a value has the wrong type; the message names `source` and the key.
    """
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
