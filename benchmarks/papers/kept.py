"""Make a file once: its name is the digest of a record of all that it depends on."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from exporter.formats.canonical_json import to_json

__all__ = ["kept"]


def kept(folder: Path, record: object, suffix: str, make: Callable[[Path], object]) -> Path:
    """Return the path of a file that `make` writes at the path it is given, unless it is there already.

    Args:
        folder: Where files are kept.
        record: All that the file depends on.
        suffix: The ending of its name.
        make: Writes it as a whole, or not at all.
    """
    digest = hashlib.sha256(to_json(record).encode()).hexdigest()
    path = folder / f"{digest[:16]}{suffix}"
    if not path.exists():
        make(path)
    return path
