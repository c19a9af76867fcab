"""Open a compiled library of ours, before a runtime loads it: a runtime says little of one that does not fit."""

import ctypes
from collections.abc import Iterable
from pathlib import Path

from exporter.errors import ArtefactError, reason_of

__all__ = ["opened_library"]


def opened_library(path: Path, entries: Iterable[str], what: str, hint: str) -> ctypes.CDLL:
    """Load a library and check its entry points.

    Args:
        path: The library.
        entries: Names of the functions that it must have.
        what: What the library is, in errors.
        hint: How to build it.

    Raises:
        ArtefactError: The file is missing, or is not this library.
    """
    if not path.is_file():
        raise ArtefactError(str(path), "no such file", f"the built {what}", hint)
    try:
        library = ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        raise ArtefactError(str(path), reason_of(error), "a library that loads", hint) from None
    if not all(hasattr(library, entry) for entry in entries):
        raise ArtefactError(str(path), "a library without its entry points", f"the {what}", hint)
    return library
