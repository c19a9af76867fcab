"""Refuse batches that this machine has no memory for, before anything is allocated."""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from exporter.errors import RecipeError
from exporter.records import ModelSpec, Preprocessing

__all__ = ["bytes_of_image", "check_batches", "free_bytes"]

FLOAT_BYTES = 4
GB = 1e9


def check_batches(flag: str, batches: Sequence[int], shape: ModelSpec | Preprocessing) -> None:
    """Compare the memory of the largest batch with what is free.

    Args:
        flag: What gives the batches, for the error.
        batches: Images per run.
        shape: The dense model's, or only that of its images.

    Raises:
        RecipeError: The batch takes more; the line says how much, how much there is, and the largest that fits.
    """
    batch, free, each = max(batches, default=1), free_bytes(), bytes_of_image(shape)
    if free is not None and batch * each > free:
        got = f"{batch}, whose images take at least {batch * each / GB:,.1f} GB"
        raise RecipeError(flag, got, f"at most {max(free // each, 1)}: {free / GB:,.1f} GB are free")


def bytes_of_image(shape: ModelSpec | Preprocessing) -> int:
    """Return the memory that an image takes at least: its pixels, and its tokens in a block."""
    if isinstance(shape, Preprocessing):
        return FLOAT_BYTES * math.prod(shape.input_size)
    tokens = shape.num_prefix_tokens + shape.num_patches
    # Query, key and value, and what they are made of.
    return bytes_of_image(shape.preprocessing) + FLOAT_BYTES * 4 * tokens * shape.dim


def free_bytes() -> int | None:
    """Return the memory that this process may still take, in bytes; None where the system does not say."""
    limits = [_number(Path("/proc/meminfo"), "MemAvailable:")]
    limits[0] = None if limits[0] is None else limits[0] * 1024
    for place, most, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, taken = (_number(Path(place, name)) for name in (most, used))
        limits.append(None if limit is None or taken is None else max(limit - taken, 0))
    return min((each for each in limits if each is not None), default=None)


def _number(path: Path, label: str = "") -> int | None:
    """Return the first number of a file, or the one after a label; None where there is none."""
    with suppress(OSError, ValueError, IndexError):
        return int(path.read_text().partition(label)[2].split()[0] if label else path.read_text())
    return None
