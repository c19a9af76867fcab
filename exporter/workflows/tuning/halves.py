"""Split evaluation images once into a half that choices read and a half that none reads."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence

from exporter.data.images import ImageFile, ImageFolder

__all__ = ["halves"]


def halves(images: ImageFolder, seed: int) -> tuple[ImageFolder, ImageFolder]:
    """Return the search half and the final half, each with every second image of each class.

    Images are ranked by the hash of their name with the seed, so that a renamed folder or another order of files
    changes nothing. The first images of a half are a fair sample of it.

    Args:
        images: Labelled, or all without a label.
        seed: Of the split.
    """
    ranked = sorted(images.files, key=lambda file: _rank(images.name_of(file), seed))
    by_class: dict[int | None, list[ImageFile]] = defaultdict(list)
    for file in ranked:
        by_class[file.label].append(file)
    parts = [
        {file for files in by_class.values() for file in _every_second(files, first)} for first in range(2)
    ]
    search, final = (tuple(file for file in ranked if file in part) for part in parts)
    return ImageFolder(images.root, search), ImageFolder(images.root, final)


def _every_second(files: Sequence[ImageFile], first: int) -> Sequence[ImageFile]:
    return files[first::2]


def _rank(name: str, seed: int) -> bytes:
    return hashlib.sha256(os.fsencode(f"{seed}/{name}")).digest()
