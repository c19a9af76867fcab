"""`SHA256SUMS` of an export folder, in the format of `sha256sum --check`: written and verified."""

from collections.abc import Iterable
from pathlib import Path

from exporter.errors import ArtefactError, OutputError, UserError, reason_of
from exporter.files import path_of, regular, sha256_of, written_beside

__all__ = ["CHECKSUMS", "read_checksums", "save_checksums", "verify_checksums"]

CHECKSUMS = "SHA256SUMS"


def save_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write `SHA256SUMS` over the named files.

    Raises:
        OutputError: The file cannot be written, or a named file is gone.
    """
    expected = "the file just written: does another command write here?"
    lines = [f"{_digest(folder / name, OutputError, expected)}  {name}\n" for name in sorted(names)]
    with written_beside(folder / CHECKSUMS) as partial:
        partial.write_text("".join(lines), encoding="utf-8")


def read_checksums(folder: Path) -> dict[str, str]:
    """Read `SHA256SUMS`; return the digests by name. The files themselves are not looked at.

    Raises:
        ArtefactError: The list is missing, empty or none, or names a file outside the folder.
    """
    path = folder / CHECKSUMS
    try:
        lines = regular(path).read_text(encoding="utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        for name in sums:
            path_of(str(folder.absolute() / name))
    except (OSError, ValueError) as error:
        raise ArtefactError(str(path), reason_of(error), "a list that star-export compile wrote") from None
    if not sums:
        raise ArtefactError(str(path), "an empty list", "a list that star-export compile wrote")
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in sums):
        raise ArtefactError(str(path), "a file outside the folder", "only files of the folder")
    return sums


def verify_checksums(folder: Path) -> dict[str, str]:
    """Verify every file against `SHA256SUMS`; return the digests by name.

    Raises:
        ArtefactError: The list is missing, or a file is missing or changed.
    """
    sums = read_checksums(folder)
    for name, expected in sums.items():
        if not (folder / name).is_file():
            raise ArtefactError(str(folder / name), "no such file", f"the one that {CHECKSUMS} lists")
        got = _digest(folder / name, ArtefactError, "a file that can be read")
        if got != expected:
            raise ArtefactError(
                str(folder / name), f"sha256 {got[:12]}…", f"{expected[:12]}… of {CHECKSUMS}", "copy it again"
            )
    return sums


def _digest(path: Path, kind: type[UserError], expected: str) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise kind(str(path), reason_of(error), expected) from None
