"""Open the images to evaluate on: a folder, or the tar files of a WebDataset."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from exporter.data.class_map import read_class_map
from exporter.data.images import ImageFile, ImageFolder, class_names, list_images, sample
from exporter.data.shards import common_folder, find_shards, is_shard, list_shards, read_shards
from exporter.errors import ImageError

__all__ = ["ImageSource", "images_at", "open_source"]


@dataclass(frozen=True)
class ImageSource:
    """Images below `root` in a fixed order, to be iterated over once.

    `total` is their number, None where only the end tells. `class_names` are those of the classes that have a name.
    """

    root: Path
    files: Iterable[ImageFile]
    total: int | None
    class_names: Mapping[int, str]

    def name_of(self, path: Path) -> str:
        """Return the path of an image below the root, with slashes."""
        return Path(os.path.relpath(path, self.root)).as_posix()


def open_source(
    paths: Sequence[Path],
    num_classes: int,
    *,
    class_map: Path | None = None,
    labels: bool = True,
    max_images: int | None = None,
    seed: int = 0,
) -> ImageSource:
    """Open a folder of images, a folder of tar files, or tar files.

    Args:
        paths: One folder, or tar files in the order to read them.
        num_classes: The classes of the model.
        class_map: JSON of class names and indices. Without it, the sorted folder names are the model's classes, and
            the labels in tar files are class indices.
        labels: Whether to read the classes of the images.
        max_images: From a folder so many are drawn by the seed; of tar files the first so many are read.
        seed: Of that draw.

    Raises:
        ImageError: There is no image, a path is neither, or the classes are not those of the model.
    """
    index = read_class_map(class_map, num_classes) if class_map is not None and labels else None
    folder = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    # Beside class folders, a tar file is what they were unpacked from.
    packed = folder is None or not class_names(folder)
    shards = tuple(paths) if folder is None else find_shards(folder) if packed else ()
    if not shards and folder is not None:
        found = _labelled(folder, num_classes, class_map) if labels else list_images(folder)
        drawn = sample(found, max_images, seed)
        names = class_names(folder) if index is None and labels else ()
        return ImageSource(folder, drawn.files, len(drawn.files), _by_index(index or names))
    for path in shards:
        if not (is_shard(path) and path.is_file()):
            got = "a folder beside others" if path.is_dir() else "no such folder or tar file"
            raise ImageError(str(path), got, "a folder of images, or tar files")
    files = islice(read_shards(shards, index, labels=labels), max_images)
    return ImageSource(common_folder(shards), files, max_images, _by_index(index or ()))


def images_at(
    place: Path, num_classes: int | None = None, class_map: Path | None = None, *, labels: bool = True
) -> ImageFolder:
    """List the images of a folder, of a folder of tar files, or of one tar file, to be read in any order.

    Args:
        place: Beside class folders, tar files are what these were unpacked from, and not read.
        num_classes: The classes of the model; None leaves labels out, as does `labels`.
        class_map: JSON of class names and indices. Without it, sorted folders are the model's classes if there are
            as many, and labels in tar files are class indices.
        labels: Whether to read the classes of the images.

    Raises:
        ImageError: There is no image, a class map does not fit, or a tar file is torn or compressed.
    """
    shards: tuple[Path, ...] = (place,) if place.is_file() and is_shard(place) else ()
    if place.is_dir() and not class_names(place):
        shards = find_shards(place)
    if not shards:
        return list_images(place, num_classes=num_classes, class_map=class_map)
    labels = labels and bool(num_classes)
    index = read_class_map(class_map, num_classes) if class_map is not None and labels else None
    return list_shards(shards, index, labels=labels)


def _labelled(folder: Path, num_classes: int, class_map: Path | None) -> ImageFolder:
    """List a folder; class folders that are not the model's classes are an error, no class folders are not."""
    found = list_images(folder, num_classes=num_classes, class_map=class_map)
    names = class_names(folder)
    if class_map is None and names and len(names) != num_classes:
        hint = "--class-map FILE gives their indices, --no-labels leaves them out"
        raise ImageError(
            f"{folder}: labels", f"{len(names)} class folders", f"{num_classes}, one per class", hint
        )
    return found


def _by_index(names: Mapping[str, int] | Sequence[str]) -> dict[int, str]:
    """Return the name of each class index; of several names of one index, the last in the map."""
    pairs = names.items() if isinstance(names, Mapping) else zip(names, count(), strict=False)
    return {index: name for name, index in pairs}
