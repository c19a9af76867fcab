"""Open the images to evaluate on: a folder, or the tar files of a WebDataset."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from exporter.core.base.errors import ImageError
from exporter.data.class_map import MAP_HINT, is_order, quoted, read_class_map
from exporter.data.images import (
    ImageFolder,
    by_folder,
    class_folders,
    list_images,
    sample,
)
from exporter.data.shards import (
    Labels,
    find_shards,
    is_shard,
    list_shards,
)


def open_source(
    paths: Sequence[Path],
    num_classes: int,
    *,
    class_map: Path | None = None,
    names: Sequence[str] = (),
    labels: bool = True,
    needs_labels: bool = False,
    max_images: int | None = None,
    seed: int = 0,
) -> ImageFolder:
    """Open a folder of images, a folder of tar files, or tar files; all of them have a label, or none has.

    Args:
        paths: One folder, or tar files in the order to read them.
        num_classes: The classes of the model.
        class_map: JSON of class names and indices, or the name of an order of folders.
        names: The model's names of its classes. Without a class map they decide, and without them the order of the
            folders (`exporter.data.class_map`); labels in tar files are names or class indices.
        labels: Whether to read the classes of the images.
        needs_labels: Whether all of them have to have one.
        max_images: From a folder so many are drawn by the seed; of tar files the first so many are read.
        seed: Of that draw.

    Raises:
        ImageError: There is no image, a path is neither, or the classes are not those of the model.
    """
    folder = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    # Beside class folders, a tar file is what they were unpacked from.
    shards = tuple(paths) if folder is None else _shards_in(folder)
    classes = num_classes if labels else None
    if folder is not None and not shards:
        images = images_at(folder, classes, class_map, names=names)
        if labels:
            _check_classes(images, num_classes)
        images = sample(images, max_images, seed)
    else:
        _check_shards(shards)
        listed = list_shards(shards, _labels(classes, class_map, names))
        images = replace(listed, files=listed.files[:max_images])
    _check_alike(images, needs_labels=needs_labels)
    return images


def _check_classes(images: ImageFolder, num_classes: int) -> None:
    got = class_mismatch(images, num_classes)
    if got:
        hint = f"{MAP_HINT}, --no-labels leaves them out"
        expected = f"{num_classes}, one per class"
        raise ImageError(f"{images.root}: labels", got, expected, hint)


def _check_shards(paths: Sequence[Path]) -> None:
    if not paths:
        raise ImageError("images", "no path", "a folder of images, or tar files")
    for path in paths:
        if not (is_shard(path) and path.is_file()):
            is_folder = path.is_dir()
            got = (
                "a folder beside others" if is_folder else "no such folder or tar file"
            )
            raise ImageError(path, got, "a folder of images, or tar files")


def images_at(
    place: Path,
    num_classes: int | None = None,
    class_map: Path | None = None,
    *,
    names: Sequence[str] = (),
) -> ImageFolder:
    """List the images of a folder, of a folder of tar files, or of one tar file, to be read in any order.

    Args:
        place: Beside class folders, tar files are what these were unpacked from, and not read.
        num_classes: The classes of the model; None leaves labels out. For a model without classes, 0, each
            folder is a class of its own.
        class_map: JSON of class names and indices, or the name of an order of folders.
        names: The model's names of its classes; see `open_source`. Where neither they nor an order decide, the
            images have no labels (`class_mismatch`).

    Raises:
        ImageError: There is no image, classes are not certain, or a tar file is torn or compressed.
    """
    shards = (place,) if place.is_file() and is_shard(place) else _shards_in(place)
    if shards:
        return list_shards(shards, _labels(num_classes, class_map, names))
    if num_classes is None:
        return list_images(place)
    listing = list_images(
        place, num_classes=num_classes, class_map=class_map, names=names
    )
    return listing if num_classes or listing.class_names else by_folder(listing)


def class_mismatch(images: ImageFolder, num_classes: int) -> str:
    """Return why the images' class folders are not the model's classes; else ""."""
    if not num_classes or not images.folders or images.class_names:
        return ""
    if num_classes == 1:
        return "one logit, which has no class for each folder"
    return f"{len(images.folders)} class folders ({quoted(images.folders)})"


def _check_alike(images: ImageFolder, *, needs_labels: bool) -> None:
    """Raise ImageError unless all images have a label, or none has."""
    first = images.files[0]
    labelled = first.label is not None
    if needs_labels and not labelled:
        expected = "one folder per class, or labels in tar files"
        hint = "only the agreement of two models, by eval, needs none"
        raise ImageError(images.name_of(first.path), "no label", expected, hint)
    for file in images.files:
        if (file.label is not None) != labelled:
            got, expected = ("no label", "one") if labelled else ("a label", "none")
            raise ImageError(
                images.name_of(file.path),
                got,
                f"{expected}, as the images before it",
                "--no-labels leaves out all",
            )


def _shards_in(place: Path) -> tuple[Path, ...]:
    shards = find_shards(place) if place.is_dir() else ()
    return () if shards and class_folders(place) else shards


def _labels(
    num_classes: int | None, class_map: Path | None, names: Sequence[str]
) -> Labels | None:
    """Return what labels in tar files mean; None where there are no classes to tell apart."""
    if num_classes is None or num_classes < 2:
        return None
    if is_order(class_map):
        raise ImageError(
            "--class-map",
            f"{class_map} for tar files",
            "a file: folders alone have an order",
        )
    index = None if class_map is None else read_class_map(class_map, num_classes)
    return Labels(num_classes, names, index)
