"""The export folder: what crosses from the box that has PyTorch to the box that serves."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from exporter.errors import ArtefactError
from exporter.files import sha256_of, written_beside
from exporter.parity.interface import decision_names
from exporter.recipe import Recipe
from exporter.records import save_json
from exporter.runners.base import Runner
from exporter.tensor_names import IMAGES, LOGITS

__all__ = [
    "CHECKSUMS",
    "REFERENCE",
    "Delivered",
    "read_folder",
    "read_reference",
    "save_checksums",
    "save_recipe",
    "save_reference",
]

CHECKSUMS = "SHA256SUMS"
REFERENCE = "reference.npz"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Delivered:
    """What an export folder holds for whoever runs its models."""

    dense: Path
    pruned: Path
    reference: Path


def read_folder(folder: Path) -> Delivered:
    """Find the models of an export folder; they are not opened.

    Raises:
        ArtefactError: It is no folder that `compile` left.
    """
    expected = "an export folder, which star-export compile leaves"
    report = folder / "report.json"
    if not report.is_file():
        raise ArtefactError(str(folder), "no report.json in it" if folder.is_dir() else "no folder", expected)
    try:
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
        dense, pruned = (folder / str(files[role]) for role in ("dense", "pruned"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            str(report), f"{type(error).__name__} {error}", "the report of a compilation"
        ) from None
    return Delivered(dense, pruned, folder / REFERENCE)


def read_reference(path: Path) -> dict[str, Array]:
    """A `reference.npz`: real `images` [n, 3, H, W] as the models take them, and what PyTorch makes of them.

    Raises:
        ArtefactError: There is no such file, or it holds no images.
    """
    expected = f"a {REFERENCE}, which star-export compile leaves"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            reference = {name: arrays[name] for name in arrays.files}
            images = reference[IMAGES]
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise ArtefactError(str(path), f"{type(error).__name__}: {error}", expected) from None
    if images.ndim != 4 or not len(images):
        raise ArtefactError(str(path), f"images of shape {list(images.shape)}", expected)
    return reference


def save_reference(reference: Runner, dense: Runner, images: Array, path: Path) -> dict[str, Array]:
    """Real images with what PyTorch makes of them, as `reference.npz`; gives the arrays back.

    `images` as the model takes them, `logits` and `keep_NN` of the pruned model, a-STAR's `count_NN`, and the
    `dense_logits` of the other.

    Raises:
        OutputError: The place cannot be written.
    """
    with reference, dense:
        results = reference.run({IMAGES: images})
        arrays = {
            IMAGES: images,
            LOGITS: results[LOGITS],
            f"dense_{LOGITS}": dense.run({IMAGES: images})[LOGITS],
            **{name: results[name] for name in decision_names(reference)},
        }
    with written_beside(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return arrays


def save_recipe(recipe: Recipe, path: Path) -> None:
    """The recipe as JSON, with every default in it.

    Raises:
        OutputError: The place cannot be written.
    """
    values = {name: str(v) if isinstance(v, Path) else v for name, v in vars(recipe).items()}
    save_json(values, path)


def save_checksums(folder: Path, names: list[str]) -> None:
    """`SHA256SUMS` over the named files, in the form that `sha256sum --check` reads.

    Raises:
        OutputError: The place cannot be written.
    """
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in sorted(names)]
    with written_beside(folder / CHECKSUMS) as partial:
        partial.write_text("".join(lines), encoding="utf-8")
