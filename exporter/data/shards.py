"""List images and their classes in WebDataset shards: uncompressed tar files, read by their members' places.

The members of one image are neighbours and share a key, their name up to the first dot, as WebDataset has it:
`0001.jpg`, and `0001.cls` (a class index or name as text) or `0001.json` (the same, or an object that has it under
"label", "cls" or "class"). Where several name a class, the first of these decides. What follows the first dot is
the ending: beside `0001.jpg`, `0001.mask.png` is not the image, nor is `img.0001.jpg` one. A warning says how many
members are left out.
"""

import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from exporter.core.base.errors import ImageError, reason_of
from exporter.core.base.files import regular
from exporter.data.class_map import ClassesByName
from exporter.data.images import (
    SUFFIXES,
    ImageFile,
    ImageFolder,
    LeftOut,
    Span,
    visible_in,
)

ENDINGS = (".tar", ".tar.gz", ".tgz")
# How files start that gzip, bzip2 and xz wrote.
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")
LABEL_KEYS = ("label", "cls", "class")
# No more of a label is read: a broken header may announce any size.
MOST_BYTES = 1 << 28
LABEL_ENDINGS = ("cls", "json")


class Member(NamedTuple):
    """A file of a shard: `key` is its name up to the first dot, `ending` what follows.

    An image has its place in the file, `span`; a label its `content`.
    """

    name: str
    key: str
    ending: str
    span: Span
    content: bytes


@dataclass(frozen=True)
class Labels:
    """What labels in tar files mean: by an `index` of each, else class indices or the model's names of its classes.

    `count` is the number of classes; None: any.
    """

    count: int | None = None
    names: Sequence[str] = ()
    index: Mapping[str, int] | None = None

    @cached_property
    def _known(self) -> ClassesByName:
        return ClassesByName(self.names)

    @property
    def class_names(self) -> dict[int, str]:
        """The names of the classes by index, of those that have one."""
        if self.index is not None:
            return {index: name for name, index in self.index.items()}
        return dict(enumerate(self.names))

    def index_of(self, label: object, place: Path) -> int:
        """Return the class that a label means."""
        if self.index is not None:
            if str(label) not in self.index:
                raise ImageError(
                    place,
                    f"the class {label!r}",
                    "one that --class-map has an index for",
                )
            return self.index[str(label)]
        named = (
            self._known.index_of(label, str(place)) if isinstance(label, str) else None
        )
        number = None if isinstance(label, bool | float) else _whole(str(label))
        if number is None and named is None:
            expected = "a class index"
            if self.names:
                expected = "a class index, or the model's name of a class"
            raise ImageError(
                place, f"the class {label!r}", expected, "--class-map FILE maps names"
            )
        if number is not None and named not in (None, number):
            got = f"the class {label!r}, the name of class {named} and the index of another"
            raise ImageError(place, got, "one of them", "--class-map FILE decides")
        index = named if number is None else number
        assert index is not None
        if self.count is not None and not 0 <= index < self.count:
            counted = "labels counted from 1? " if index == self.count else ""
            hint = f"{counted}--class-map FILE maps them"
            raise ImageError(
                place, f"the class {index}", f"an index from 0 below {self.count}", hint
            )
        return index


ANY_INDEX = Labels()


def is_shard(path: Path) -> bool:
    """Return whether the name of a file is that of a tar file."""
    return path.name.lower().endswith(ENDINGS)


def is_packed(path: Path) -> bool:
    """Return whether a tar file is compressed, by its first bytes: then its images have no places."""
    try:
        with regular(path).open("rb") as file:
            return file.read(6).startswith(COMPRESSED)
    except OSError:
        return False


def find_shards(folder: Path) -> tuple[Path, ...]:
    """Return the tar files of a folder, sorted by name; hidden ones are left out. Errors as of `visible_in`."""
    paths = [folder / entry.name for entry in visible_in(folder)]
    return tuple(filter(is_shard, paths))


def list_shards(
    paths: Sequence[Path], labels: Labels | None = ANY_INDEX
) -> ImageFolder:
    """List the images of uncompressed shards by their places, in order; without `labels`, no label is read."""
    files: list[ImageFile] = []
    left = LeftOut()
    for path in paths:
        if is_packed(path):
            expected = "an uncompressed one: its images are read in any order"
            raise ImageError(
                path, "a compressed tar file", expected, "unpack it with gunzip"
            )
        images = list(_images(path, labels, left))
        if not images:
            raise ImageError(
                path,
                "no image",
                f"members whose first dot begins {', '.join(sorted(SUFFIXES))}",
            )
        files += images
    said = list[str]()
    unlabelled = sum(file.label is None for file in files)
    if labels is not None and unlabelled:
        said.append(f"images without a label: {unlabelled} of {len(files)}")
    root = Path(os.path.commonpath([path.parent.absolute() for path in paths]))
    left.say(str(paths[0] if len(paths) == 1 else root), *said)
    return ImageFolder(root, tuple(files), {} if labels is None else labels.class_names)


def _images(path: Path, labels: Labels | None, left: LeftOut) -> Iterator[ImageFile]:
    for _, group in groupby(_members(path, left), key=lambda member: member.key):
        image: Member | None = None
        beside: dict[str, bytes] = {}
        for member in group:
            if not _is_image(member.ending):
                beside[member.ending] = member.content
            elif image is None:
                image = member
            else:
                left.keyless.append(member.name)
        if image is not None:
            place = path / image.name
            label = None if labels is None else _label(place, beside, labels)
            yield ImageFile(place, label, image.span)


class _Header(tarfile.TarInfo):
    """A member's header; a broken one within a file is an error, where `tarfile` would take it for the end."""

    @classmethod
    def fromtarfile(cls, archive: Any) -> "_Header":
        ends = tuple(
            getattr(tarfile, name) for name in ("EOFHeaderError", "EmptyHeaderError")
        )
        try:
            return super().fromtarfile(archive)
        except ends:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} at byte {archive.offset}") from None


def _members(path: Path, left: LeftOut) -> Iterator[Member]:
    """Yield the files of a shard that are an image or its label."""
    try:
        with tarfile.open(regular(path), "r:", tarinfo=_Header) as archive:
            for header in archive:
                place = PurePosixPath(header.name)
                stem, _, ending = place.name.partition(".")
                ending = ending.lower()
                if not header.isfile():
                    continue
                if not stem or not (_is_image(ending) or ending in LABEL_ENDINGS):
                    if stem and place.suffix.lower() in SUFFIXES:
                        left.keyless.append(header.name)
                    else:
                        left.note(place.name)
                    continue
                key, content = str(place.with_name(stem)), b""
                span = Span(path, header.offset_data, header.size)
                if ending in LABEL_ENDINGS and (file := archive.extractfile(header)):
                    content = file.read(MOST_BYTES)
                yield Member(header.name, key, ending, span, content)
    except (OSError, EOFError, tarfile.TarError) as error:
        reason = reason_of(error)
        raise ImageError(
            path, f"no whole tar file ({reason})", "one that can be read to its end"
        ) from None


def _is_image(ending: str) -> bool:
    return f".{ending}" in SUFFIXES


def _label(place: Path, beside: Mapping[str, bytes], labels: Labels) -> int | None:
    """Return the class that the members beside an image say, the first that does; None where none does."""
    if "cls" in beside:
        text = beside["cls"].decode("utf-8", errors="replace")
        return labels.index_of(text.strip(), place)
    if "json" not in beside:
        return None
    try:
        content = json.loads(beside["json"])
    except ValueError as error:
        got = f"no JSON ({reason_of(error)})"
        expected = "a class, or an object with one"
        raise ImageError(f"{place}: .json", got, expected) from None
    named = content if isinstance(content, dict) else {LABEL_KEYS[0]: content}
    for key in LABEL_KEYS:
        if named.get(key) is not None:
            return labels.index_of(named[key], place)
    return None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None
