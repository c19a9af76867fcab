"""Tar files as WebDataset writes them."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image


def encoded(seed: int, form: str = "PNG", side: int = 40) -> bytes:
    """The bytes of an image file of noise."""
    pixels = np.random.default_rng(seed).integers(
        0, 256, (side, side, 3), dtype=np.uint8
    )
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def write_shard(
    path: Path, members: Mapping[str, Any], mode: Literal["w", "w:gz"] = "w"
) -> Path:
    """A tar file of these members, bytes or text, in this order."""
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            raw = content.encode() if isinstance(content, str) else content
            header = tarfile.TarInfo(name)
            header.size = len(raw)
            archive.addfile(header, io.BytesIO(raw))
    return path
