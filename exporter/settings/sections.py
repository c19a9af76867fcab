"""Settings in sections: a record for each step, a table of a TOML file for each record, one set of flags."""

import dataclasses
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from exporter.errors import RecipeError
from exporter.settings.fields import Field, Settings, fields_of, from_table, text_of

__all__ = ["Sections", "flags_of", "from_tables", "homes_of", "places_of", "sections_of", "told_of"]

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
        """Return the record with other values, by the keys of flags.

        Raises:
            RecipeError: A key is unknown, or a value is out of range or contradicts another.
        """
        changes: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            for section, name in places_of(type(self), key):
                changes.setdefault(section, {})[name] = value
        changed = {name: dataclasses.replace(getattr(self, name), **own) for name, own in changes.items()}
        record: Any = self  # a dataclass is made of it
        return dataclasses.replace(record, **changed)

    def told(self) -> dict[str, dict[str, Any]]:
        """Return the values that differ from their defaults, by section and key."""
        return {name: told_of(getattr(self, name)) for name in sections_of(type(self))}


def told_of(settings: Settings) -> dict[str, Any]:
    """Return the values that differ from their defaults, by name."""
    values = ((name, getattr(settings, name), each) for name, each in fields_of(type(settings)).items())
    return {name: value for name, value, each in values if value not in (each.default, None, {})}


def sections_of(kind: type) -> Mapping[str, type[Settings]]:
    """Return the classes of the sections by name."""
    return _sections_of(kind)


@cache  # apart, since mypy takes classes of settings for unhashable
def _sections_of(kind: type) -> Mapping[str, type[Settings]]:
    kinds = typing.get_type_hints(kind)
    return {each.name: kinds[each.name] for each in dataclasses.fields(kind)}


@cache
def _places(kind: type) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return where each key belongs: in which sections, and under which name."""
    every = [
        (field.key, field.has_flag, (section, name))
        for section, own in _sections_of(kind).items()
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
    return {key: fields_of(sections[places[0][0]])[places[0][1]] for key, places in _places(kind).items()}


def from_tables(kind: type, tables: Mapping[str, Any], source: str) -> dict[str, dict[str, Any]]:
    """Return the values of TOML tables, checked against the fields of the sections of their names.

    Raises:
        RecipeError: A key is unknown or in another table, or a value has the wrong type. It names `source`.
    """
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
        return RecipeError(f"{source} {name}", text_of(value), f"a table, [{name}]")
    known = ", ".join(f"[{each}]" for each in sections_of(kind))
    return RecipeError(f"{source} {name}", "an unknown key", f"one of the tables {known}")
