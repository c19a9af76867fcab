"""The export folder: what crosses from the box that has PyTorch to the box that serves."""

from pathlib import Path
from typing import Any

import numpy as np

from exporter.files import sha256_of, written_beside
from exporter.parity.interface import decision_names
from exporter.recipe import Recipe
from exporter.records import save_json
from exporter.runners.base import Runner
from exporter.tensor_names import IMAGES, LOGITS

__all__ = ["CHECKSUMS", "save_checksums", "save_recipe", "save_reference"]

CHECKSUMS = "SHA256SUMS"

Array = np.ndarray[Any, Any]


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
