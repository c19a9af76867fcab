"""Read images and their classes from WebDataset shards: tar files, in one pass or by their members' places.

The members of one image are neighbours and share a name up to the first dot: `0001.jpg`, and `0001.cls` (a class
index or name as text) or `0001.json` (the same, or an object that has it under "label", "cls" or "class").
"""

import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from exporter.data.images import SUFFIXES, ImageFile, ImageFolder, Span
from exporter.errors import ImageError, reason_of
from exporter.files import regular

__all__ = ["common_folder", "find_shards", "is_shard", "list_shards", "read_shards"]

ENDINGS = (".tar", ".tar.gz", ".tgz")
LABEL_KEYS = ("label", "cls", "class")
# No more of a member is read: encoded images are smaller, and a broken header may announce any size.
MOST_BYTES = 1 << 28


class Member(NamedTuple):
    """A file of a shard: `key` is its name up to the first dot, `ending` the lower-case rest.

    An image has its `content`, or its place in the file, `span`.
    """

    name: str
    key: str
    ending: str
    content: bytes | None
    span: Span | None


def is_shard(path: Path) -> bool:
    """Return whether the name of a file is that of a tar file."""
    return path.name.lower().endswith(ENDINGS)


def find_shards(folder: Path) -> tuple[Path, ...]:
    """Return the tar files of a folder, sorted by name; hidden ones are left out."""
    found = (path for path in folder.iterdir() if is_shard(path) and not path.name.startswith("."))
    return tuple(sorted(found))


def read_shards(
    paths: Sequence[Path], index: Mapping[str, int] | None = None, *, labels: bool = True
) -> Iterator[ImageFile]:
    """Yield the images of shards in order, each with its bytes; only one shard is open, and one image in memory.

    Args:
        paths: The tar files; compressed ones are recognised by their content.
        index: The class index of each label. None: labels are class indices.
        labels: Whether to read the labels.

    Raises:
        ImageError: A file is no tar file, or is torn; or a label is no class.
    """
    for path in paths:
        yield from _images(path, _members(path, "r|*"), index, labels=labels)


def list_shards(
    paths: Sequence[Path], index: Mapping[str, int] | None = None, *, labels: bool = True
) -> ImageFolder:
    """List the images of uncompressed shards by their places, to be read in any order; arguments as above.

    Raises:
        ImageError: A file is no uncompressed tar file, is torn or has no image; or a label is no class.
    """
    files: list[ImageFile] = []
    for path in paths:
        if not path.name.lower().endswith(".tar"):
            expected = "an uncompressed one: its images are read in any order"
            raise ImageError(str(path), "a compressed tar file", expected, "unpack it with gunzip")
        found = tuple(_images(path, _members(path, "r:"), index, labels=labels))
        if not found:
            raise ImageError(str(path), "no image", f"members ending in {', '.join(sorted(SUFFIXES))}")
        files += found
    return ImageFolder(common_folder(paths), tuple(files))


def common_folder(paths: Sequence[Path]) -> Path:
    """Return the folder below which all files are."""
    return Path(os.path.commonpath([path.parent.absolute() for path in paths]))


def _images(
    path: Path, members: Iterable[Member], index: Mapping[str, int] | None, *, labels: bool
) -> Iterator[ImageFile]:
    for _, group in groupby(members, key=lambda member: member.key):
        sample = {member.ending: member for member in group}
        image = next((each for ending, each in sample.items() if _is_image(ending)), None)
        if image is not None:
            place = path / image.name
            label = _label(place, _told(place, sample), index) if labels else None
            yield ImageFile(place, label, image.content, image.span)


class _Header(tarfile.TarInfo):
    """A member's header; a broken one within a file is an error, where `tarfile` would take it for the end."""

    @classmethod
    def fromtarfile(cls, archive: Any) -> "_Header":
        ends = tuple(getattr(tarfile, name) for name in ("EOFHeaderError", "EmptyHeaderError"))
        try:
            return super().fromtarfile(archive)
        except ends:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} at byte {archive.offset}") from None


def _members(path: Path, mode: Literal["r|*", "r:"]) -> Iterator[Member]:
    """Yield the files of a shard that are an image or its label; with "r:", images by their places."""
    try:
        with tarfile.open(regular(path), mode, tarinfo=_Header) as archive:
            for each in archive:
                place = PurePosixPath(each.name)
                stem, _, ending = place.name.partition(".")
                ending = ending.lower()
                if each.isfile() and stem and (_is_image(ending) or ending in ("cls", "json")):
                    key, content, span = str(place.with_name(stem)), None, None
                    if mode == "r:" and _is_image(ending):
                        span = Span(path, each.offset_data, each.size)
                    else:
                        file = archive.extractfile(each)
                        content = file.read(MOST_BYTES) if file else b""
                    yield Member(each.name, key, ending, content, span)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        reason = reason_of(error)
        raise ImageError(
            str(path), f"no whole tar file ({reason})", "one that can be read to its end"
        ) from None


def _is_image(ending: str) -> bool:
    return f".{ending}" in SUFFIXES


def _told(place: Path, sample: Mapping[str, Member]) -> object:
    """Return what the members beside an image say of its class: an index, a name, or None."""
    if "cls" in sample:
        return (sample["cls"].content or b"").decode("utf-8", errors="replace").strip()
    if "json" not in sample:
        return None
    try:
        told = json.loads(sample["json"].content or b"")
    except ValueError as error:
        raise ImageError(
            f"{place}: .json", f"no JSON ({reason_of(error)})", "a class, or an object with one"
        ) from None
    if not isinstance(told, dict):
        return told
    return next((told[key] for key in LABEL_KEYS if key in told), None)


def _label(place: Path, told: object, index: Mapping[str, int] | None) -> int | None:
    if told is None:
        return None
    if index is not None:
        if str(told) not in index:
            raise ImageError(str(place), f"the class {told!r}", "one that --class-map has an index for")
        return index[str(told)]
    try:
        if isinstance(told, bool | float):
            raise ValueError
        return int(str(told))
    except ValueError:
        raise ImageError(
            str(place), f"the class {told!r}", "a class index", "--class-map maps names"
        ) from None
