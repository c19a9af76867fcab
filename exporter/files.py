"""Artefacts appear whole or not at all: written beside their place, then renamed."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from exporter.errors import OutputError

__all__ = ["sha256_of", "writable_folder", "written_beside"]


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the body ends without an error.

    Raises:
        OutputError: The folder cannot be made or written, or the disk is full. Nothing is left behind.
    """
    if not path.name:
        raise OutputError(str(path), "a folder", "the name of a file to write")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def writable_folder(path: Path) -> Path:
    """Make the folder and try it, so that a long job does not fail at its end.

    Raises:
        OutputError: It cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise _cannot_write(path, error) from None


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(
        str(path), error.strerror or str(error), "a place that can be written, with room on it"
    )
