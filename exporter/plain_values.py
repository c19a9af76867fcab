"""Records as the plain values that JSON holds, and back, checked against the types of their fields."""

import dataclasses
import types
import typing
from enum import Enum
from typing import Any

__all__ = ["build", "plain"]


def plain(value: Any) -> Any:
    """Records as dicts and tuples as lists, all the way down."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def build(kind: Any, value: Any) -> Any:  # noqa: PLR0911  (one return a kind)
    """`value` from JSON as `kind`: a record, a tuple, a dict, an optional or a plain type.

    Raises:
        TypeError: It is none; the first thing that does not fit is named.
    """
    if dataclasses.is_dataclass(kind):
        return _build_record(kind, value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return build(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list) or (arguments[-1] is not Ellipsis and len(value) != len(arguments)):
            raise TypeError(f"{value!r} where a list belongs")
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(build(k, v) for k, v in zip(kinds, value, strict=True))
    if origin is dict:
        return {key: build(arguments[1], item) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is not Any and (not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))):
        raise TypeError(f"{value!r} where {kind.__name__} belongs")
    return value


def _build_record(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} where an object belongs")
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise TypeError(f"unknown key {unknown[0]!r}")
    required = {f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING}
    missing = sorted(required - set(value))
    if missing:
        raise TypeError(f"no key {missing[0]!r}")
    return kind(**{key: build(hints[key], item) for key, item in value.items()})
