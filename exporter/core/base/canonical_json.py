"""Frozen records as canonical JSON.

Canonical means: sorted keys, fixed whitespace, floats in Python's shortest round-trip form, and neither times nor
paths. The same inputs therefore give the same bytes.
"""

import json
import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from exporter.core.base.errors import ArtefactError, UserError, reason_of
from exporter.core.base.files import regular, written_beside

RecordT = TypeVar("RecordT")

# What Python reads for a byte of a file's name that is no UTF-8; JSON has an escape for it, and UTF-8 has none.
BYTES = re.compile("[\udc80-\udcff]")


def to_json(record: object) -> str:
    """Return the canonical JSON of a record, in one line."""
    return _text(record, separators=(",", ":"))


def save_json(record: object, path: Path) -> None:
    """Write a record as indented JSON with sorted keys; `path` is replaced atomically."""
    with written_beside(path) as partial:
        partial.write_text(_text(record, indent=2) + "\n", encoding="utf-8")


def from_json(kind: type[RecordT], text: str | bytes, *, source: str) -> RecordT:
    """Read a record from JSON."""
    try:
        table = _decoded(text)
        # Keys of JSON are text: a dictionary may have numbers for them.
        record = msgspec.convert(table, kind, str_keys=True)
        _refuse_unknown(table, _plain(record))
    except (ValueError, RecursionError, UserError) as error:
        raise ArtefactError(
            source, reason_of(error), f"the JSON of a {kind.__name__}"
        ) from None
    return record


def load_json(kind: type[RecordT], path: Path) -> RecordT:
    """Read a record from a file."""
    try:
        return from_json(kind, regular(path).read_bytes(), source=str(path))
    except OSError as error:
        raise ArtefactError(
            path, reason_of(error), f"the JSON of a {kind.__name__}"
        ) from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not JSON, is nested too deeply, has a number that is none, or a key twice, of which Python
            would take the last.
    """
    text = regular(path).read_text(encoding="utf-8")
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    """Return a number of JSON, which has no other: Python also reads NaN, and 1e999 as infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text}, which is no number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object as a dictionary."""
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key!r} twice")
        table[key] = value
    return table


def _decoded(text: str | bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        # msgspec takes the escape of a byte for half a character; whatever else is wrong is wrong here too.
        with suppress(ValueError, RecursionError):
            table = json.loads(text)
            to_json(table).encode()
            if isinstance(table, dict):
                return table
        raise


def _text(record: object, **layout: Any) -> str:
    text = json.dumps(
        _plain(record), sort_keys=True, ensure_ascii=False, allow_nan=False, **layout
    )
    return BYTES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(record: object) -> Any:
    return msgspec.to_builtins(record, enc_hook=os.fspath, str_keys=True)


def _refuse_unknown(content: Any, known: Any) -> None:
    """Raise ValueError for the first unknown key: msgspec ignores unknown keys of a dataclass."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key not in known:
                raise ValueError(f"an unknown key {key!r}")
            _refuse_unknown(value, known[key])
    if isinstance(content, list):
        for value, inner in zip(content, known, strict=True):
            _refuse_unknown(value, inner)
