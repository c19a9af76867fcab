"""Decide the class index of each folder of images, and of each label in tar files.

A class map of the user decides first: a JSON file, or one of the words `sorted` and `natural`. Then the model's
names of its classes decide, where folders have them. Then the order of the folders does, where there is only one:
torchvision sorts them, and timm orders them naturally, so that 2 comes before 10.
"""

import logging
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from exporter.core.base.canonical_json import read_json
from exporter.core.base.errors import ImageError, reason_of

logger = logging.getLogger(__name__)

MAP_HINT = "--class-map FILE gives their indices"
# Names that a line lists.
MOST = 3


def _natural(folders: Collection[str]) -> list[str]:
    """Sort as timm does: numbers by their value, and without regard to case."""

    def key(name: str) -> list[int | str]:
        parts = re.split(r"(\d+)", name.lower())
        return [int(part) if place % 2 else part for place, part in enumerate(parts)]

    return sorted(sorted(folders), key=key)


# The orders of folders that a class map may name in place of a file.
ORDERS: Mapping[str, Callable[[Collection[str]], list[str]]] = {
    "sorted": sorted,
    "natural": _natural,
}


def is_order(class_map: Path | None) -> bool:
    """Whether a class map is the name of an order."""
    return str(class_map) in ORDERS


class ClassesByName:
    """The classes of a model by name.

    A class is found by its whole name; else, without regard to case and with spaces, hyphens, underscores and
    slashes alike, by its name or by some of its synonyms, which commas separate: "tench, Tinca tinca".
    `names` are in the order of the logits.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._whole: dict[str, set[int]] = defaultdict(set)
        self._alike: dict[str, set[int]] = defaultdict(set)
        for index, name in enumerate(names):
            self._whole[name].add(index)
            for synonym in (name, *name.split(",")):
                self._alike[_folded(synonym.strip())].add(index)

    def named(self, text: str) -> set[int]:
        """Return the classes of a name."""
        synonyms = [
            self._alike.get(_folded(part.strip()), set()) for part in text.split(",")
        ]
        return (
            self._whole.get(text)
            or self._alike.get(_folded(text))
            or set.intersection(*synonyms)
        )

    def index_of(self, text: str, subject: str) -> int | None:
        """Return the class of a name, None if no class has it."""
        classes = sorted(self.named(text))
        if len(classes) > 1:
            got = (
                f"{text!r}, a name of the classes {', '.join(map(str, classes[:MOST]))}"
            )
            raise ImageError(subject, got, "a name of one class", MAP_HINT)
        return classes[0] if classes else None

    def indices(self, folders: Sequence[str], subject: str) -> dict[str, int]:
        """Return the classes of folders, nothing if none of them has the name of a class."""
        by_class: dict[int, str] = {}
        nameless: list[str] = []
        for folder in folders:
            index = self.index_of(folder, subject)
            if index is None:
                nameless.append(folder)
                continue
            twin = by_class.setdefault(index, folder)
            if twin != folder:
                got = f"two class folders, {twin!r} and {folder!r}, of the class {self.names[index]!r}"
                raise ImageError(subject, got, "one folder per class", MAP_HINT)
        if by_class and nameless:
            got = f"{len(by_class)} folders with names of classes, {len(nameless)} without ({quoted(nameless)})"
            hint = f"{MAP_HINT}, --class-map sorted or natural goes by their order"
            raise ImageError(subject, got, f"names such as {quoted(self.names)}", hint)
        return {folder: index for index, folder in by_class.items()}


def class_indices(
    folders: Sequence[str],
    num_classes: int | None,
    names: Sequence[str] = (),
    class_map: Path | None = None,
    *,
    empty: Collection[str] = (),
    subject: str,
) -> dict[str, int]:
    """Return the class index of each folder; nothing where neither names nor order decide, or for one logit.

    Args:
        folders: Their names.
        num_classes: The classes of the model; None: a file of any indices.
        names: The model's names of them, in the order of the logits; none if it knows none.
        class_map: A JSON file, or the name of an order.
        empty: The folders without images: they count in an order, but need not have the name of a class.
        subject: What errors and warnings are about.
    """
    if num_classes == 1:
        return {}
    if class_map is not None and not is_order(class_map):
        return read_class_map(class_map, num_classes)
    if class_map is None and len(names) == num_classes:
        filled = [folder for folder in folders if folder not in empty]
        indices = ClassesByName(names).indices(filled, subject)
        if indices:
            if len(indices) < num_classes:
                text = "%s: images of %d of the model's %d classes"
                logger.warning(text, subject, len(indices), num_classes)
            return indices
    if len(folders) != num_classes:
        return {}
    ordered = ORDERS["sorted" if class_map is None else str(class_map)](folders)
    if class_map is None:
        _require_one_order(ordered, subject)
        reason = "no class folder has the name of a class"
        classes = [repr(name) for name in names]
        if not names:
            reason = "the model has no class names"
            classes = [f"class {index}" for index in range(num_classes)]
        first, second = ordered[:2]
        text = "%s: %s: the order of the folders decides, %r is %s, %r is %s (%s)"
        logger.warning(
            text, subject, reason, first, classes[0], second, classes[1], MAP_HINT
        )
    return {folder: index for index, folder in enumerate(ordered)}


def read_class_map(path: Path, num_classes: int | None) -> dict[str, int]:
    """Read a JSON object of class names and class indices."""
    expected = "a JSON object of folder names and class indices"
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise ImageError(path, reason_of(error), expected) from None
    if not isinstance(content, dict):
        raise ImageError(path, f"a JSON {type(content).__name__}", expected)
    for name, value in content.items():
        is_index = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not is_index or (num_classes is not None and value >= num_classes):
            limit = "" if num_classes is None else f" below {num_classes}"
            raise ImageError(
                path, f"{value!r} for {name!r}", f"a class index from 0{limit}"
            )
    return content


def quoted(names: Sequence[str]) -> str:
    """Return the first names for a line."""
    return ", ".join(map(repr, names[:MOST])) + (", …" if len(names) > MOST else "")


def _folded(name: str) -> str:
    # Some file systems decompose accents, and none has slashes in the name of a folder.
    return re.sub(r"[\s_/-]+", " ", unicodedata.normalize("NFC", name).casefold())


def _require_one_order(ordered: Sequence[str], subject: str) -> None:
    """Refuse sorted folders whose natural order is another one."""
    pairs = enumerate(zip(ordered, _natural(ordered), strict=True))
    for index, (first, second) in pairs:
        if first != second:
            got = f"class folders in two orders: class {index} is {first!r} if sorted, {second!r} in natural order"
            hint = (
                "--class-map sorted (as torchvision) or --class-map natural (as timm)"
            )
            raise ImageError(
                subject, got, "the order that the model was trained with", hint
            )
