"""Digests of images: of their bytes, with or without their paths below a folder; or of names, classes and sizes."""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress

from exporter.data.images import ImageFile, ImageFolder
from exporter.errors import ImageError, reason_of

__all__ = ["dataset_sha256", "folder_sha256", "listing_sha256"]


def dataset_sha256(files: Sequence[ImageFile]) -> str:
    """Return a hex digest over the bytes of all files, concatenated; a file that cannot be read adds nothing."""
    digest = hashlib.sha256()
    for file in files:
        with suppress(OSError):
            digest.update(file.read())
    return digest.hexdigest()


def folder_sha256(images: ImageFolder) -> str:
    """Return a hex digest over the relative paths and the bytes of all files, in the order of the paths.

    Raises:
        ImageError: A file cannot be read.
    """
    digest = hashlib.sha256()
    for file in images.files:
        try:
            content = file.read()
        except OSError as error:
            raise ImageError(str(file.path), reason_of(error), "a file that can be read") from None
        digest.update(os.fsencode(f"{images.name_of(file)} {len(content)}\n"))
        digest.update(content)
    return digest.hexdigest()


def listing_sha256(images: ImageFolder) -> str:
    """Return a hex digest over the names, classes and sizes of all files: quick, where every byte would take hours.

    Raises:
        ImageError: A file cannot be found.
    """
    digest = hashlib.sha256()
    for file in images.files:
        try:
            size = file.span.size if file.span else file.path.stat().st_size
        except OSError as error:
            raise ImageError(str(file.path), reason_of(error), "a file") from None
        digest.update(os.fsencode(f"{images.name_of(file)} {file.label} {size}\n"))
    return digest.hexdigest()
