"""Write artefacts atomically, by a temporary file and a rename; and keep the unfinished work of a job."""

import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from exporter.core.base.errors import ArtefactError, OutputError, UserError, reason_of

# What the public functions take where a path belongs.
PathLike: TypeAlias = str | os.PathLike[str]

# The type of a record's path that may be left out: given as text or path, kept as a path. Type checkers take the
# type of the argument from `__set__`, that of the attribute from `__get__`.
if TYPE_CHECKING:

    class GivenPath:
        """What a type checker sees of it."""

        def __get__(self, record: object, kind: Any) -> Path | None: ...
        def __set__(self, record: object, value: PathLike | None) -> None: ...

else:
    GivenPath = Path | None

# What file systems take; a longer name or path would be an OSError wherever it is first looked at.
LONGEST_NAME, LONGEST_PATH = 255, 4095

# The permission bits by which anybody may write a file.
WRITABLE = 0o222


StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Unfinished:
    """The file of a job that may be interrupted: it names the job, and no other job continues from it.

    A job either replaces a state, or appends a line for each record that is finished. `kind` is for people, `job`
    is all that the result depends on, as text.
    """

    path: Path
    kind: str
    job: str

    def state(self, read: Callable[[Path], tuple[object, StateT]]) -> StateT | None:
        """Return the state that the file holds; None where there is no file.

        `read` returns the job that the file names, and its state.
        """
        if not os.path.lexists(self.path):
            return None
        try:
            job, state = read(regular(self.path))
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            RecursionError,
            UserError,
        ) as error:
            raise self._refused(
                reason_of(error), f"an unfinished {self.kind}"
            ) from None
        if job != self.job:
            got = f"a {self.kind} of other settings, images or versions"
            raise self._refused(got, "that of this job")
        return state

    def replace(self, write: Callable[[Path], object]) -> None:
        """Write the file anew with `write`, which also writes the job."""
        with written_beside(self.path) as partial:
            write(partial)

    def records(self) -> list[Any]:
        """Return what was appended, as plain values; a line that is not whole is no record."""
        return self.state(_lines_of) or []

    def append(self, record: Any) -> None:
        """Append a record of plain values."""
        if not self.path.exists():
            self.replace(
                lambda path: path.write_text(
                    json.dumps({"job": self.job}) + "\n", encoding="utf-8"
                )
            )
        try:
            with self.path.open("a+b") as file:
                file.seek(-1, os.SEEK_END)
                torn = file.read() != b"\n"  # the job ended while it wrote this line
                file.write(b"\n" * torn + json.dumps(record).encode() + b"\n")
        except OSError as error:
            raise _cannot_write(self.path, error) from None

    def _refused(self, got: str, expected: str) -> ArtefactError:
        return ArtefactError(self.path, got, expected, "delete it to start again")


def _lines_of(path: Path) -> tuple[object, list[Any]]:
    first, *lines = path.read_bytes().split(b"\n")
    records = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            records.append(json.loads(line))
    return json.loads(first)["job"], records


def path_of(text: str) -> Path:
    """Return the path that a user's text names.

    Raises:
        ValueError: It names nothing on any file system: it is too long, or has a NUL in it. Or it is not UTF-8:
            runtimes open no such path.
    """
    content = os.fsencode(text)
    longest = max(map(len, content.split(b"/")))
    is_utf8 = content.decode(errors="replace").encode() == content
    if (
        not is_utf8
        or b"\0" in content
        or longest > LONGEST_NAME
        or len(content) > LONGEST_PATH
    ):
        raise ValueError(
            f"a path without NUL, of names of at most {LONGEST_NAME} bytes, in UTF-8"
        )
    return Path(text)


def is_path(name: str) -> bool:
    """Whether a name is one of a file or folder here, or can be no other."""
    with suppress(ValueError, OSError):
        far = name.startswith((".", "/", "~")) or name.count("/") > 1
        return far or (bool(name) and path_of(name).exists())
    return False


def has_file(folder: str, name: str) -> bool:
    """Whether a folder has a file; False for a folder that no file system can name."""
    with suppress(ValueError):
        return path_of(f"{folder}/{name}").is_file()
    return False


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and rename it to `path` if the body raises no error.

    A link stays: what it points to is replaced. What a killed process leaves is hidden, and stays: no name tells
    whether another machine or container still writes it.

    Raises:
        OutputError: The folder cannot be created or written, or the disk is full. The temporary file is removed.
            Or `path` is a folder, a device, a pipe or a read-only file.
    """
    place = _replaceable(path)
    partial = _partial_of(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(place)
    except (OSError, RecursionError) as error:
        raise _cannot_write(path, error) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder in `folder`, and move its files to `folder` if the body raises no error.

    Other files of `folder` stay.

    Raises:
        OutputError: The folder cannot be created or written, the disk is full, or what lies where a file belongs
            cannot be replaced. What was created is removed.
    """
    missing: list[Path] = []
    try:
        missing += [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as name:
            aside = Path(name)
            yield aside
            files = sorted(
                path.relative_to(aside) for path in aside.rglob("*") if path.is_file()
            )
            for file in files:
                writable_file(folder / file)
            for file in files:
                with written_beside(folder / file) as partial:
                    shutil.move(aside / file, partial)
    except (OSError, RecursionError) as error:
        raise _cannot_write(folder, error) from None
    finally:
        _remove_empty(missing)


def writable_folder(path: Path) -> Path:
    """Try whether the folder can be created and written, so that a long job does not fail at its end.

    A job that is refused leaves nothing: the folders that are missing are made in a temporary one, beside where
    they belong. So processes that try the same place at once do not remove what another one has just made.
    """
    there = next(
        (place for place in (path, *path.parents) if os.path.lexists(place)), path
    )
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".star-export-") as aside:
            folder = Path(aside, path.relative_to(there))
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return path
    except (OSError, RecursionError) as error:
        raise _cannot_write(path, error) from None


def writable_file(path: Path) -> Path:
    """Try the folder of a file to write, so that a long job does not fail at its end."""
    writable_folder(_replaceable(path).parent)
    return path


def regular(path: Path) -> Path:
    """Return the path of a file to read.

    Raises:
        OSError: It is a pipe or a device, on which reading may wait or never end.
    """
    if path.exists() and not path.is_file():
        raise OSError("a folder" if path.is_dir() else "no regular file")
    return path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal text."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _replaceable(path: Path) -> Path:
    """Return the place to write, behind links; OutputError if what lies there is no file, or a read-only one."""
    try:
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        got = "" if place.name and not place.is_dir() else "a folder"
        if place.is_symlink() or (not got and place.exists() and not place.is_file()):
            got = "no regular file"
        elif place.is_file() and not place.stat().st_mode & WRITABLE:
            got = "a read-only file"
        if not got:
            _partial_of(place).exists()  # its name may be too long
    except OSError as error:
        raise _cannot_write(path, error) from None
    if got:
        raise OutputError(path, got, "the name of a file to write")
    return place


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _cannot_write(path: Path, error: OSError | RecursionError) -> OutputError:
    if isinstance(error, RecursionError):  # of Path.mkdir
        return OutputError(
            path, f"{len(path.parts)} folders in each other", "fewer of them"
        )
    return OutputError(path, reason_of(error), "a writable path with free space")


def _partial_of(path: Path) -> Path:
    """Return a new place beside `path`, which no other process or thread writes to."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
