"""Artefacts appear whole or not at all: written beside their place, then renamed."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.errors import OutputError

__all__ = ["sha256_of", "writable_folder", "written_beside"]


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the body ends without an error.

    Raises:
        OutputError: The folder cannot be made or written, or the disk is full. Nothing is left behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from None
    finally:
        if partial.parent.is_dir():
            partial.unlink(missing_ok=True)


def writable_folder(path: Path) -> Path:
    """Make the folder and try it, so that a long job does not fail at its end.

    Raises:
        OutputError: It cannot be made or written.
    """
    with written_beside(path / "probe") as partial:
        partial.touch()
    (path / "probe").unlink()
    return path


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
