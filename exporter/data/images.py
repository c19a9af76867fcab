"""List a folder's images in a fixed order, with their classes and a hash that identifies them."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from exporter.data.class_map import read_class_map
from exporter.errors import ImageError, reason_of
from exporter.files import regular

__all__ = [
    "SUFFIXES",
    "UNKNOWN",
    "ImageFile",
    "ImageFolder",
    "Span",
    "check_folder",
    "class_names",
    "draw",
    "list_images",
    "ranked",
    "sample",
]

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif"}
)

# In an array of classes: that of an image whose class is not known.
UNKNOWN = -1


@dataclass(frozen=True)
class Span:
    """The bytes of a tar file's member."""

    archive: Path
    offset: int
    size: int


@dataclass(frozen=True)
class ImageFile:
    """One image and the index of its class, None where it is unknown.

    A member of a tar file has the `path` of the tar file and its own; its bytes are in `content`, or to be read
    from its `span`.
    """

    path: Path
    label: int | None
    content: bytes | None = field(default=None, repr=False)
    span: Span | None = None

    def read(self) -> bytes:
        """Return the encoded image.

        Raises:
            OSError: The file cannot be read.
        """
        if self.content is not None:
            return self.content
        if self.span is None:
            return regular(self.path).read_bytes()
        with self.span.archive.open("rb") as archive:
            archive.seek(self.span.offset)
            return archive.read(self.span.size)


@dataclass(frozen=True)
class ImageFolder:
    """Images in the order of their paths below `root`."""

    root: Path
    files: tuple[ImageFile, ...]

    @property
    def labelled(self) -> bool:
        """Whether the class of every image is known."""
        return all(file.label is not None for file in self.files)

    def name_of(self, file: ImageFile) -> str:
        """Return the path of an image below the root, with slashes."""
        return Path(os.path.relpath(file.path, self.root)).as_posix()


def list_images(
    folder: Path, *, num_classes: int | None = None, class_map: Path | None = None
) -> ImageFolder:
    """Find the images below a folder, at any depth; hidden files and folders are skipped.

    The subfolder of `folder` that an image is in names its class. The class index comes from `class_map`, a JSON
    object of folder names and class indices; without one it is the subfolder's place among all sorted subfolders,
    if there are as many as the model has classes. Otherwise no image has a label.

    Raises:
        ImageError: No such folder, no image in it, one that cannot be read, or a class map that does not fit.
    """
    check_folder(folder)
    paths = sorted(_walk(folder), key=lambda path: path.relative_to(folder).parts)
    if not paths:
        raise ImageError(str(folder), "no image", f"files ending in {', '.join(sorted(SUFFIXES))}")
    if class_map is not None:
        index = read_class_map(class_map, num_classes)
    else:
        names = class_names(folder)
        index = {name: place for place, name in enumerate(names)} if len(names) == num_classes else {}
    files = tuple(ImageFile(path, _label(path.relative_to(folder), index, class_map)) for path in paths)
    return ImageFolder(folder, files)


def check_folder(folder: Path) -> None:
    """Open a folder and its subfolders, before the work that needs the images in them.

    Raises:
        ImageError: There is no such folder, or one of them cannot be read.
    """
    if not folder.is_dir():
        raise ImageError(str(folder), "no such folder", "a folder of images, or of one folder per class")
    for name in ("", *class_names(folder)):
        try:
            # Names alone can be listed where nothing may be opened.
            os.stat(os.path.join(folder, name, "."))  # noqa: PTH116, PTH118  (Path drops the dot)
            os.scandir(folder / name).close()
        except OSError as error:
            raise _unreadable(error) from None


def class_names(folder: Path) -> tuple[str, ...]:
    """Return the direct subfolders of a folder, sorted, without hidden ones; ImageError if it cannot be read."""
    try:
        folders = [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except OSError as error:
        raise _unreadable(error) from None
    return tuple(sorted(name for name in folders if not name.startswith(".")))


def sample(images: ImageFolder, count: int | None, seed: int) -> ImageFolder:
    """Draw at most `count` of the images by the seed, and keep their order; all of them for None."""
    if count is None or count >= len(images.files):
        return images
    return ImageFolder(images.root, tuple(images.files[i] for i in draw(len(images.files), count, f"{seed}")))


def draw(total: int, count: int, seed: str) -> list[int]:
    """Draw `count` different indices below `total`, ascending: those whose hash with the seed is smallest.

    It uses no library's random generator, so that the same seed always gives the same draw.
    """
    return sorted(ranked(total, seed)[:count])


def ranked(total: int, seed: str) -> list[int]:
    """Return the indices below `total` in the order of their hash with the seed: a draw takes the first of them."""
    return sorted(range(total), key=lambda index: hashlib.sha256(f"{seed}/{index}".encode()).digest())


def _walk(folder: Path) -> Iterator[Path]:
    """Yield image files below a folder; links to folders are followed, but no folder is entered twice."""
    entered = set()
    for place, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield Path(place, name)


def _refuse(error: OSError) -> None:
    raise _unreadable(error) from None


def _unreadable(error: OSError) -> ImageError:
    return ImageError(str(error.filename), reason_of(error), "a folder that can be read")


def _label(relative: Path, index: dict[str, int], class_map: Path | None) -> int | None:
    name = relative.parts[0] if len(relative.parts) > 1 else ""
    if class_map is not None and name not in index:
        got = f"no class for folder {name!r}" if name else f"{relative.name} outside the class folders"
        raise ImageError(str(class_map), got, "an index for every folder that holds images")
    return index.get(name)
