"""List a folder's images in a fixed order, with their classes and a hash that identifies them."""

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from exporter.core.base.errors import ImageError, reason_of
from exporter.core.base.files import regular
from exporter.core.base.tensor_names import Array
from exporter.data.class_map import class_indices, is_order, quoted
from exporter.data.spread import set_apart

logger = logging.getLogger(__name__)

SUFFIXES = frozenset(
    {
        ".jpg",
        ".jpeg",
        ".png",
        ".webp",
        ".bmp",
        ".gif",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".jp2",
        ".avif",
    }
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

    A member of a tar file has the `path` of the tar file and its own; its bytes are to be read from its `span`. One
    at hand has `pixels`, [3, height, width]: uint8, or float32 as normalised for the model.
    """

    path: Path
    label: int | None
    span: Span | None = None
    pixels: Array | None = field(default=None, compare=False, repr=False)

    def read(self) -> bytes:
        """Return the encoded image, or the bytes of its pixels.

        Raises:
            OSError: The file cannot be read.
        """
        if self.pixels is not None:
            return self.pixels.tobytes()
        if self.span is None:
            return regular(self.path).read_bytes()
        with self.span.archive.open("rb") as archive:
            archive.seek(self.span.offset)
            return archive.read(self.span.size)


@dataclass(frozen=True)
class ImageFolder:
    """Images in the order of their paths below `root`.

    `class_names` has the names of the classes in the data, by index, where a name decided the class of the images.
    `folders` are the direct subfolders of the root, sorted; none of tar files.
    """

    root: Path
    files: tuple[ImageFile, ...]
    class_names: Mapping[int, str] = field(
        default_factory=dict, compare=False, repr=False
    )
    folders: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def labelled(self) -> bool:
        """Whether the class of every image is known."""
        return all(file.label is not None for file in self.files)

    def name_of(self, path: Path) -> str:
        """Return the path of an image below the root, with slashes."""
        return Path(os.path.relpath(path, self.root)).as_posix()


@dataclass
class LeftOut:
    """What is not read of a folder or a tar file, to be said in one line.

    Files are counted by their endings; `keyless` are the names of images in a tar file that are not their key's.
    """

    endings: Counter[str] = field(default_factory=Counter)
    hidden: int = 0
    keyless: list[str] = field(default_factory=list)

    def note(self, name: str) -> None:
        """Count a file by its ending; a hidden one only if it has that of an image."""
        ending = Path(name).suffix.lower()
        if not name.startswith("."):
            self.endings[ending or "without ending"] += 1
        elif ending in SUFFIXES:
            self.hidden += 1

    def say(self, subject: str, *more: str) -> None:
        """Log one line if anything was left out, or if there is `more` to say."""
        by_ending = ", ".join(
            f"{number} {ending}" for ending, number in sorted(self.endings.items())
        )
        parts: list[str] = []
        if by_ending:
            parts.append(f"files left out by their ending: {by_ending}")
        if self.hidden:
            parts.append(f"hidden folders and images left out: {self.hidden}")
        if self.keyless:
            parts.append(
                f"images left out that are not their key's, the name up to its first dot: {len(self.keyless)}, "
                f"the first {self.keyless[0]}"
            )
        parts += more
        if parts:
            logger.warning("%s: %s", subject, "; ".join(parts))


def list_images(
    folder: Path,
    *,
    num_classes: int | None = None,
    class_map: Path | None = None,
    names: Sequence[str] = (),
) -> ImageFolder:
    """Find the images below a folder, at any depth; what is left out is counted in a warning.

    The subfolder of `folder` that an image is in names its class. `exporter.data.class_map` decides its index by
    the class map, the model's `names` of its classes, or the order of the subfolders; where it cannot, no image has
    a label.

    Raises:
        ImageError: No such folder, no image in it, one that cannot be read, a class map that does not fit, or
            folders whose classes are not certain.
    """
    _require_folder(folder)
    left = LeftOut()
    paths: list[Path] = []
    folders: tuple[str, ...] = ()
    for place, subfolders, images in _walk(folder, left):
        paths += images
        if place == folder:
            folders = tuple(subfolders)
    if not paths:
        raise ImageError(
            folder, "no image", f"files ending in {', '.join(sorted(SUFFIXES))}"
        )
    paths.sort(key=lambda path: path.relative_to(folder).parts)
    filled = {_folder_of(path, folder) for path in paths}
    empty = [name for name in folders if name not in filled]
    mapped = class_map is not None and not is_order(class_map)
    index: Mapping[str, int] = {}
    if num_classes or mapped:
        index = class_indices(
            folders, num_classes, names, class_map, empty=empty, subject=str(folder)
        )
    files = tuple(
        ImageFile(path, _label(path, folder, index, class_map if mapped else None))
        for path in paths
    )
    left.say(
        str(folder),
        *_of_classes(files, empty if num_classes else (), labelled=bool(index)),
    )
    class_names = {place: name for name, place in index.items()}
    return ImageFolder(folder, files, class_names, folders=folders)


def _of_classes(
    files: Sequence[ImageFile], empty: Sequence[str], *, labelled: bool
) -> Iterator[str]:
    """Say which class folders hold no image, and how many images are in none."""
    if empty:
        yield f"class folders without an image: {len(empty)} ({quoted(empty)})"
    outside = [file for file in files if file.label is None] if labelled else ()
    if outside:
        yield f"images outside the class folders, which have no class: {len(outside)} ({outside[0].path.name!r}, …)"


def check_readable(folder: Path) -> None:
    """Open a folder and its subfolders, before the work that needs the images in them."""
    _require_folder(folder)
    for name in ("", *class_folders(folder)):
        _require_opening(folder / name)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ImageError(
            folder, "no such folder", "a folder of images, or of one folder per class"
        )


def _require_opening(folder: Path) -> None:
    """Refuse a folder that cannot be read, or of which names may be listed, and nothing may be opened."""
    try:
        os.scandir(folder).close()
        os.stat(os.path.join(folder, "."))  # noqa: PTH116, PTH118  (Path drops the dot)
    except OSError as error:
        _refuse(error)


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the direct subfolders of a folder, sorted, without hidden ones; ImageError if it cannot be read."""
    entries = visible_in(folder)
    try:
        return tuple(entry.name for entry in entries if entry.is_dir())
    except OSError as error:  # of a link
        _refuse(error)


def visible_in(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, sorted by name, but for what is hidden; ImageError if it cannot be read."""
    try:
        entries = [*os.scandir(folder)]
    except OSError as error:
        _refuse(error)
    visible = [entry for entry in entries if not entry.name.startswith(".")]
    return sorted(visible, key=lambda entry: entry.name)


def sample(images: ImageFolder, count: int | None, seed: int) -> ImageFolder:
    """Draw at most `count` of the images by the seed, and keep their order; all of them for None."""
    if count is None or count >= len(images.files):
        return images
    return _at(images, draw(len(images.files), count, f"{seed}"))


def split(
    images: ImageFolder, share: float, seed: int
) -> tuple[ImageFolder, ImageFolder]:
    """Return the images that stay, and a share of each class, both in their order.

    Images of a class are ranked by the hash of their name with the seed, so that a renamed folder changes nothing.
    All have labels, or none has.
    """

    def class_and_rank(place: int) -> tuple[int, bytes]:
        file = images.files[place]
        name = os.fsencode(f"{seed}/{images.name_of(file.path)}")
        label = UNKNOWN if file.label is None else file.label
        return label, hashlib.sha256(name).digest()

    rest, apart = set_apart(sorted(range(len(images.files)), key=class_and_rank), share)
    return _at(images, sorted(rest)), _at(images, sorted(apart))


def _at(images: ImageFolder, places: Iterable[int]) -> ImageFolder:
    return replace(images, files=tuple(images.files[place] for place in places))


def draw(total: int, count: int, seed: str) -> list[int]:
    """Draw `count` different indices below `total`, ascending: those whose hash with the seed is smallest."""
    return sorted(ranked(total, seed)[:count])


def ranked(total: int, seed: str) -> list[int]:
    """Return the indices below `total` in the order of their hash with the seed: a draw takes the first of them.

    It uses no library's random generator, so that the same seed always gives the same draw.
    """
    return sorted(
        range(total),
        key=lambda index: hashlib.sha256(f"{seed}/{index}".encode()).digest(),
    )


def _walk(folder: Path, left: LeftOut) -> Iterator[tuple[Path, list[str], list[Path]]]:
    """Yield each folder, its subfolders and its images; links are followed, but no folder is entered twice."""
    entered = set()
    for place, subfolders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in entered:
            subfolders.clear()
            continue
        entered.add(real)
        _require_opening(Path(place))
        visible = sorted(name for name in subfolders if not name.startswith("."))
        left.hidden += len(subfolders) - len(visible)
        # The walk goes on into these.
        subfolders[:] = visible
        images = []
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                images.append(Path(place, name))
            else:
                left.note(name)
        yield Path(place), subfolders, images


def _refuse(error: OSError) -> NoReturn:
    raise ImageError(
        error.filename, reason_of(error), "a folder that can be read"
    ) from None


def _folder_of(path: Path, root: Path) -> str:
    """Return the subfolder of the root that an image is in, "" if it is in none."""
    parts = path.relative_to(root).parts
    return parts[0] if len(parts) > 1 else ""


def by_folder(images: ImageFolder) -> ImageFolder:
    """Return the images with the place of their folder as their class, for a model that has no classes.

    They are as they were where an image is in no folder, or all are in one.
    """
    names = [_folder_of(file.path, images.root) for file in images.files]
    folders = sorted(set(names))
    if len(folders) < 2 or "" in folders:
        return images
    place = {name: index for index, name in enumerate(folders)}
    labelled = []
    for file, name in zip(images.files, names, strict=True):
        labelled.append(replace(file, label=place[name]))
    return replace(images, files=tuple(labelled))


def _label(
    path: Path, root: Path, index: Mapping[str, int], class_map: Path | None
) -> int | None:
    name = _folder_of(path, root)
    if class_map is not None and name not in index:
        got = (
            f"no class for folder {name!r}"
            if name
            else f"{path.name} outside the class folders"
        )
        raise ImageError(class_map, got, "an index for every folder that holds images")
    return index.get(name)


def shared_count(images: ImageFolder, others: ImageFolder) -> int:
    """Return how many files both have."""
    return len(_places(images) & _places(others))


def _places(images: ImageFolder) -> set[tuple[Path, str]]:
    """Return the places of the files, behind links to their folders."""
    folders = {file.path.parent for file in images.files}
    resolved = {folder: folder.resolve() for folder in folders}
    return {(resolved[file.path.parent], file.path.name) for file in images.files}


def dataset_sha256(files: Sequence[ImageFile]) -> str:
    """Return a hex digest over the bytes of all files, concatenated; a file that cannot be read adds nothing."""
    digest = hashlib.sha256()
    for file in files:
        with suppress(OSError):
            digest.update(file.read())
    return digest.hexdigest()


def listing_sha256(images: ImageFolder) -> str:
    """Return a hex digest over names, classes and sizes of all files: quick, where every byte would take hours."""
    digest = hashlib.sha256()
    for file in images.files:
        try:
            size = file.span.size if file.span else file.path.stat().st_size
        except OSError as error:
            raise ImageError(file.path, reason_of(error), "a file") from None
        digest.update(os.fsencode(f"{images.name_of(file.path)} {file.label} {size}\n"))
    return digest.hexdigest()
