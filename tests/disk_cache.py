"""Cache slow results on disk for all processes of a test run and for later runs of the same code.

Entries are in a folder named by a hash of all that could change them: every file of `exporter/`, every helper of
the tests, the interpreter, each installed library by its version, and what numbers are summed by, the CPU's
instructions and `SUMS`. A run that differs in one of them uses another folder.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from filelock import FileLock

from exporter.core.base.files import written_beside
from exporter.core.base.machine import CPUINFO

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".pytest_cache" / "made-once"
# Runs of this many versions of the code find theirs again.
VERSIONS = 3
DONE = "made-once.sha256"
# Variables by which libraries take other kernels.
SUMS = ("MKL_CBWR", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")


def shared_bytes(
    name: str, parts: tuple[object, ...], make: Callable[[], bytes]
) -> bytes:
    """What `make` gives; `parts` tell an entry from others of its name."""
    path = _folder() / f"{name}.{_digest(*(repr(part).encode() for part in parts))}"
    with FileLock(f"{path}.lock"):
        if path.is_file():
            return path.read_bytes()
        content = make()
        if _sources_are_unchanged():
            with written_beside(path) as partial:
                partial.write_bytes(content)
    return content


def shared_folder(name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills, for tests to read: a test that writes takes a copy.

    One that was changed, or never finished, is made again.
    """
    place = _folder() / name
    done = place.with_name(f"{name}.{DONE}")
    with FileLock(f"{place}.lock"):
        if not (
            place.is_dir() and done.is_file() and done.read_text() == _content_of(place)
        ):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            make(place)
            done.write_text(_content_of(place) if _sources_are_unchanged() else "")
    return place


@cache
def _folder() -> Path:
    _times()  # before the sources are read
    folder = PLACE / _key()
    PLACE.mkdir(parents=True, exist_ok=True)
    with FileLock(PLACE / ".lock"):
        folder.mkdir(exist_ok=True)
        folder.touch()
        others = sorted(
            PLACE.glob("*/"), key=lambda path: path.stat().st_mtime, reverse=True
        )
        for old in others[VERSIONS:]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


@cache
def _sources() -> tuple[Path, ...]:
    helpers = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if not path.name.startswith("test_")
    ]
    sources = [
        path
        for path in (ROOT / "exporter").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    return tuple(sorted(helpers + sources))


@cache
def _times() -> list[int]:
    return _read_times()


def _read_times() -> list[int]:
    return [path.stat().st_mtime_ns if path.exists() else 0 for path in _sources()]


def _sources_are_unchanged() -> bool:
    """Whether nobody edited one since this process read them."""
    return _read_times() == _times()


def _key() -> str:
    content = (
        part for path in _sources() for part in (str(path).encode(), path.read_bytes())
    )
    parts = (value.encode() for value in (sys.version, *_kernels()))
    return _digest(*parts, *_libraries(), *content)


def _kernels() -> Iterator[str]:
    """What libraries choose their kernels by; the model's name of a virtual CPU says too little."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.is_file() else []
    yield next((line for line in lines if line.startswith("flags")), "")
    for name in SUMS:
        yield os.environ.get(name, "")


@cache
def _libraries() -> tuple[bytes, ...]:
    return tuple(
        sorted(
            {
                f"{distribution.name} {distribution.version}".encode()
                for distribution in distributions()
            }
        )
    )


def _content_of(folder: Path) -> str:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names_and_bytes = (
        (str(path.relative_to(folder)).encode(), path.read_bytes()) for path in paths
    )
    return _digest(*(part for pair in names_and_bytes for part in pair))


def _digest(*parts: bytes) -> str:
    """Of the parts and where each ends."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()[:32]
