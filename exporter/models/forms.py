"""Files and folders that are no checkpoint of one network: how each form is told, and what makes one of it.

The forms are the rows of forms.toml, which says what is evidence.
"""

import re
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from exporter.core.base.errors import CheckpointError

A_CHECKPOINT = "a .safetensors file or a checkpoint of tensors"
TABLE = Path(__file__).with_suffix(".toml")
# Bytes at the beginning of a file that tell what it is.
BEGINNING = 64


class Form(msgspec.Struct):
    """A row: the pattern of a line of evidence, the name of what it tells, and what to do."""

    sign: str
    name: str
    remedy: str


@cache
def forms() -> list[Form]:
    """Read the table."""
    return msgspec.toml.decode(TABLE.read_bytes(), type=dict[str, list[Form]])["form"]


def refusal(
    path: Path | str,
    evidence: Iterable[str],
    got: str = "",
    expected: str = A_CHECKPOINT,
) -> CheckpointError | None:
    """Return the error of the first form that a line of evidence tells; `got` is said after its name."""
    lines, place = [*evidence], Path(path)
    folder = place if place.is_dir() else place.parent
    for form in forms():
        for line in lines:
            if match := re.search(form.sign, line, re.DOTALL):
                remedy = match.expand(form.remedy).replace("{folder}", str(folder))
                name = "; ".join(filter(None, (match.expand(form.name), got)))
                hint = remedy.replace("{path}", str(path))
                return CheckpointError(path, name, expected, hint)
    return None


def evidence_of(path: Path) -> list[str]:
    """Return what tells the form of a file or folder that nothing can be read from."""
    if path.is_dir():
        return [f"holds {_listed(entry.name for entry in path.iterdir())}"]
    with path.open("rb") as file:
        begins = f"begins {file.read(BEGINNING).decode('latin-1')}"
    lines = [begins, f"named {path.name}"]
    try:
        with zipfile.ZipFile(path) as archive:
            lines.append(f"packs {_listed(archive.namelist())}")
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError):
        pass
    return lines


def _listed(names: Iterable[str]) -> str:
    return "".join(f"{name} " for name in sorted(names))
