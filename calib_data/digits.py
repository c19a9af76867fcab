"""Write scikit-learn's handwritten digits as two image folders with one subfolder per class.

    python calib_data/digits.py --out build/digits

writes `train/<class>/<index>.png` and `held_out/<class>/<index>.png`; the index is scikit-learn's.
The 8x8 digits fill their frame, so there would be nothing to prune. Each is therefore placed on a black 16x16
canvas, near the middle, like the object of a photo. `manifest.json` beside this file has checksums of the pixels;
the script writes nothing that does not match them.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from exporter.errors import ArtefactError, MissingDependencyError, OutputError, UserError

__all__ = ["SPLITS", "describe", "load_split", "main", "write_digits"]

MANIFEST = Path(__file__).with_name("manifest.json")
SPLITS = ("train", "held_out")
SEED = 20240517
CANVAS = 16
MARGIN = 3  # pixels that stay black along each side of the canvas


class Digits(NamedTuple):
    """One half of the images, ordered by class and then by index, like their paths."""

    pixels: NDArray[np.uint8]  # [images, 16, 16]
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]


def load_split() -> dict[str, Digits]:
    """Split each class into halves at random; the extra image of an odd class goes to training.

    `RandomState` is frozen, so every NumPy version draws the same halves.
    """
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415  (only this function needs it)
    except ImportError:
        raise MissingDependencyError("scikit-learn", "train") from None
    source = load_digits()
    random = np.random.RandomState(SEED)
    pixels = _on_canvas(np.rint(source.images * (255 / 16)).astype(np.uint8), random)
    labels = source.target.astype(np.int64)
    halves: dict[str, list[NDArray[np.int64]]] = {name: [] for name in SPLITS}
    for label in np.unique(labels):
        shuffled = random.permutation(np.flatnonzero(labels == label))
        middle = (len(shuffled) + 1) // 2
        for name, part in zip(SPLITS, (shuffled[:middle], shuffled[middle:]), strict=True):
            halves[name].append(np.sort(part))
    chosen = {name: np.concatenate(parts) for name, parts in halves.items()}
    return {name: Digits(pixels[index], labels[index], index) for name, index in chosen.items()}


def _on_canvas(digits: NDArray[np.uint8], random: np.random.RandomState) -> NDArray[np.uint8]:
    count, height, width = digits.shape
    canvas = np.zeros((count, CANVAS, CANVAS), np.uint8)
    corners = random.randint(MARGIN, CANVAS - MARGIN - height + 1, size=(count, 2))
    for image, digit, (top, left) in zip(canvas, digits, corners, strict=True):
        image[top : top + height, left : left + width] = digit
    return canvas


def describe(digits: Digits) -> dict[str, Any]:
    """Return the manifest entry of one half: counts by class, and a SHA-256 of all pixels in order."""
    classes, counts = np.unique(digits.labels, return_counts=True)
    return {
        "images": len(digits.labels),
        "per_class": {str(label): int(count) for label, count in zip(classes, counts, strict=True)},
        "pixels_sha256": hashlib.sha256(np.ascontiguousarray(digits.pixels).tobytes()).hexdigest(),
    }


def check(found: dict[str, Digits], manifest: Path) -> None:
    """Compare both halves with the manifest.

    Raises:
        ArtefactError: The manifest cannot be read, or does not match the pixels.
    """
    try:
        stated = json.loads(manifest.read_text(encoding="utf-8"))["splits"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(str(manifest), f"{type(error).__name__}", "a manifest with 'splits'") from None
    for name, digits in found.items():
        if (came := describe(digits)) != stated.get(name):
            raise ArtefactError(
                f"{name} half of the digits",
                f"{came['images']} images, sha256 {came['pixels_sha256'][:12]}",
                f"those of {manifest}",
                "another version of scikit-learn may have other pixels",
            )


def _read_back(folder: Path) -> dict[str, Digits]:
    found = {}
    for name in SPLITS:
        paths = sorted((folder / name).glob("*/*.png"))
        pixels = np.array([np.asarray(Image.open(path)) for path in paths], dtype=np.uint8)
        labels, indices = ([int(text) for text in texts] for texts in _parts(paths))
        found[name] = Digits(pixels, np.array(labels, np.int64), np.array(indices, np.int64))
    return found


def _parts(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    return [path.parent.name for path in paths], [path.stem for path in paths]


def _is_complete(out: Path, manifest: Path) -> bool:
    try:
        check(_read_back(out), manifest)
    except (UserError, OSError, ValueError):
        return False
    return True


def write_digits(out: Path, manifest: Path = MANIFEST) -> bool:
    """Write both halves under `out`, atomically.

    Returns:
        Whether anything was written: a complete folder is not changed.

    Raises:
        ArtefactError: The pixels do not match the manifest.
        OutputError: `out` contains something else, or cannot be written.
    """
    if _is_complete(out, manifest):
        return False
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise OutputError(str(out), "a path that holds something else", "a new folder", "delete it first")
    halves = load_split()
    check(halves, manifest)
    beside = out.with_name(f"{out.name}.{os.getpid()}.partial")
    try:
        for name, digits in halves.items():
            for pixels, label, index in zip(*digits, strict=True):
                path = beside / name / str(label) / f"{index:04d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)
        if out.exists():
            out.rmdir()
        beside.rename(out)
    except OSError as error:
        raise OutputError(str(out), str(error.strerror), "a folder that can be written") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, write the folders, and return the exit code."""
    parser = argparse.ArgumentParser(prog="digits.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="Folder to write, e.g. build/digits.")
    out: Path = parser.parse_args(argv).out
    try:
        written = write_digits(out)
    except UserError as error:
        sys.stderr.write(f"digits.py: error: {error}\n")
        return 2
    sys.stderr.write(f"{out}: {'written' if written else 'already complete'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
