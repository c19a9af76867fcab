"""The record of a hostile input, and the places that its words can name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR


@dataclass(frozen=True)
class Place:
    """What words refer to: `{work}` is a fresh folder, the others are whole and only read."""

    work: Path
    weights: Path
    images: Path
    calibration: Path
    folder: Path
    dense: Path
    pruned: Path

    def words(self, line: str) -> list[str]:
        """The words of a line; an empty one is written as two quotes."""
        return [
            "" if word == "''" else word.format(**vars(self)) for word in line.split()
        ]


Prepare = Callable[[Place], object]


@dataclass(frozen=True)
class Hostile:
    """A command, a part of the one line that it answers with, its exit code, and what prepares `{work}`."""

    line: str
    says: str
    code: int = 2
    prepare: Prepare | None = None
    name: str = ""

    @property
    def id(self) -> str:
        """A short name, for reports of tests."""
        line = (
            self.line
            if len(self.line) < 120
            else f"{self.line[:30]} … {self.line[-70:]}"
        )
        return f"{self.name}: {line}" if self.name else line


def each(command: str, *rows: tuple[str, str]) -> Iterator[Hostile]:
    """The inputs of a command: further words, and a part of the answer."""
    yield from (Hostile(f"{command} {words}", says) for words, says in rows)


def keys(command: str, *rows: tuple[str, str]) -> Iterator[Hostile]:
    """The inputs of a command with a recipe: its text, and a part of the answer."""
    for text, says in rows:
        line = f"{command} --recipe {{work}}/r.toml"
        yield Hostile(line, says, prepare=text_at("r.toml", text), name=text)


def bytes_at(name: str, content: bytes) -> Prepare:
    """Write a file into `{work}`, and the folder that it is in."""

    def prepare(place: Place) -> None:
        path = place.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return prepare


def text_at(name: str, text: str) -> Prepare:
    return bytes_at(name, text.encode())


def folder_at(name: str) -> Prepare:
    """Make a folder in `{work}`."""
    return lambda place: (place.work / name).mkdir(parents=True)


def state_of(*folders: Path) -> dict[Path, tuple[int, ...]]:
    """What lies in folders: the mode of each entry, and of a file also its size and when it was written."""
    found: dict[Path, tuple[int, ...]] = {}
    for path in (path for folder in folders for path in folder.rglob("*")):
        told = path.lstat()
        written = () if S_ISDIR(told.st_mode) else (told.st_size, told.st_mtime_ns)
        found[path] = (told.st_mode, *written)
    return found
