"""Write scikit-learn's handwritten digits as two image folders with one subfolder per class.

    python calib_data/digits.py --out build/digits
    python calib_data/digits.py --set offset-digits --out build/offset_digits

writes `train/<class>/<name>.png` and `held_out/<class>/<name>.png`; the name starts with scikit-learn's index.
The 8x8 digits fill their frame, so there would be nothing to prune. Each is therefore placed on a black canvas: in
the set `digits` near the middle of 16x16 pixels, like the object of a photo; in the set `offset-digits` anywhere on
28x28 pixels, so that no fixed choice of patches contains it. `manifest.json` beside this file has checksums of the
pixels; the script writes nothing that does not match them.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from exporter.core.base.errors import (
    ArtefactError,
    MissingDependencyError,
    OutputError,
    UserError,
)

MANIFEST = Path(__file__).with_name("manifest.json")
SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class DigitSet:
    """How digits are placed: the side of the canvas and the black margin, in pixels, and the seed.

    A training digit is placed `train_places` times, a held-out one once: held-out images are independent.
    """

    name: str
    canvas: int
    margin: int
    train_places: int
    seed: int


SETS = {
    digit_set.name: digit_set
    for digit_set in (
        DigitSet("digits", canvas=16, margin=3, train_places=1, seed=20240517),
        DigitSet("offset-digits", canvas=28, margin=2, train_places=6, seed=20240518),
    )
}


class Digits(NamedTuple):
    """One half of the images, ordered by class, index and place, like their paths."""

    pixels: NDArray[np.uint8]  # [images, canvas, canvas]
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    places: NDArray[np.int64]  # counted from 0 for each digit


def load_split(digit_set: DigitSet) -> dict[str, Digits]:
    """Split each class into halves at random; the extra image of an odd class goes to training.

    `RandomState` is frozen, so every NumPy version draws the same halves.
    """
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415  (only this function needs it)
    except ImportError:
        raise MissingDependencyError("scikit-learn", "train") from None
    source = load_digits()
    random = np.random.RandomState(digit_set.seed)
    pixels = _on_canvas(
        np.rint(source.images * (255 / 16)).astype(np.uint8), digit_set, random
    )
    labels = source.target.astype(np.int64)
    halves: dict[str, list[NDArray[np.int64]]] = {name: [] for name in SPLITS}
    for label in np.unique(labels):
        shuffled = random.permutation(np.flatnonzero(labels == label))
        middle = (len(shuffled) + 1) // 2
        for name, part in zip(
            SPLITS, (shuffled[:middle], shuffled[middle:]), strict=True
        ):
            halves[name].append(np.sort(part))
    return {
        name: _of_half(
            pixels,
            labels,
            np.concatenate(parts),
            digit_set.train_places if name == "train" else 1,
        )
        for name, parts in halves.items()
    }


def _of_half(
    pixels: NDArray[np.uint8],
    labels: NDArray[np.int64],
    chosen: NDArray[np.int64],
    num_places: int,
) -> Digits:
    places = np.tile(np.arange(num_places), len(chosen))
    indices = np.repeat(chosen, num_places)
    return Digits(pixels[places, indices], labels[indices], indices, places)


def _on_canvas(
    digits: NDArray[np.uint8], digit_set: DigitSet, random: np.random.RandomState
) -> NDArray[np.uint8]:
    """Return every digit at each of its places: [places, digits, canvas, canvas]."""
    count, height, width = digits.shape
    side, margin = digit_set.canvas, digit_set.margin
    canvas = np.zeros((digit_set.train_places, count, side, side), np.uint8)
    corners = random.randint(
        margin, side - margin - height + 1, size=(digit_set.train_places, count, 2)
    )
    for images, of_place in zip(canvas, corners, strict=True):
        for image, digit, (top, left) in zip(images, digits, of_place, strict=True):
            image[top : top + height, left : left + width] = digit
    return canvas


def describe(digits: Digits) -> dict[str, Any]:
    """Return the manifest entry of one half: counts by class, and a SHA-256 of all pixels in order."""
    classes, counts = np.unique(digits.labels, return_counts=True)
    return {
        "images": len(digits.labels),
        "per_class": {
            str(label): int(count) for label, count in zip(classes, counts, strict=True)
        },
        "pixels_sha256": hashlib.sha256(
            np.ascontiguousarray(digits.pixels).tobytes()
        ).hexdigest(),
    }


def check(halves: dict[str, Digits], digit_set: DigitSet, manifest: Path) -> None:
    """Compare both halves with the manifest.

    Raises:
        ArtefactError: The manifest cannot be read, or does not match the pixels.
    """
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        stated = content["sets"][digit_set.name]["splits"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            manifest,
            f"{type(error).__name__}",
            f"a manifest of the set {digit_set.name}",
        ) from None
    for name, digits in halves.items():
        if (came := describe(digits)) != stated.get(name):
            raise ArtefactError(
                f"{name} half of {digit_set.name}",
                f"{came['images']} images, sha256 {came['pixels_sha256'][:12]}",
                f"those of {manifest}",
                "another version of scikit-learn may have other pixels",
            )


def _read_back(folder: Path) -> dict[str, Digits]:
    halves = {}
    for name in SPLITS:
        paths = sorted((folder / name).glob("*/*.png"))
        pixels = np.array(
            [np.asarray(Image.open(path)) for path in paths], dtype=np.uint8
        )
        numbers = np.array([_numbers(path) for path in paths], dtype=np.int64).reshape(
            -1, 3
        )
        halves[name] = Digits(pixels, *numbers.T)
    return halves


def _file_name(index: int, place: int, num_places: int) -> str:
    return f"{index:04d}.png" if num_places == 1 else f"{index:04d}-{place}.png"


def _numbers(path: Path) -> tuple[int, int, int]:
    """Class, index and place of an image, from its path."""
    index, _, place = path.stem.partition("-")
    return int(path.parent.name), int(index), int(place or 0)


def _is_complete(out: Path, digit_set: DigitSet, manifest: Path) -> bool:
    try:
        check(_read_back(out), digit_set, manifest)
    except (UserError, OSError, ValueError):
        return False
    return True


def write_digits(
    out: Path, digit_set: DigitSet = SETS["digits"], manifest: Path = MANIFEST
) -> bool:
    """Write both halves of a set under `out`, atomically.

    Returns:
        Whether anything was written: a complete folder is not changed.

    Raises:
        ArtefactError: The pixels do not match the manifest.
        OutputError: `out` contains something else, or cannot be written.
    """
    if _is_complete(out, digit_set, manifest):
        return False
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise OutputError(
            out, "a path that holds something else", "a new folder", "delete it first"
        )
    halves = load_split(digit_set)
    check(halves, digit_set, manifest)
    beside = out.with_name(f"{out.name}.{os.getpid()}.partial")
    try:
        for name, digits in halves.items():
            num_places = int(digits.places.max()) + 1
            for pixels, label, index, place in zip(*digits, strict=True):
                path = beside / name / str(label) / _file_name(index, place, num_places)
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)
        if out.exists():
            out.rmdir()
        beside.rename(out)
    except OSError as error:
        raise OutputError(
            out, str(error.strerror), "a folder that can be written"
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, write the folders, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="digits.py", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="Folder to write, e.g. build/digits."
    )
    parser.add_argument(
        "--set", choices=SETS, default="digits", help="How the digits are placed."
    )
    arguments = parser.parse_args(argv)
    out: Path = arguments.out
    try:
        written = write_digits(out, SETS[arguments.set])
    except UserError as error:
        sys.stderr.write(f"digits.py: error: {error}\n")
        return 2
    sys.stderr.write(f"{out}: {'written' if written else 'already complete'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
