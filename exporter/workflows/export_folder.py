"""The export folder: what crosses from the export machine to the deployment machine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from exporter.artefact import LoweredFile, read_pair
from exporter.errors import ArtefactError
from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.files import sha256_of, written_beside
from exporter.records import Pair
from exporter.runtimes.base import Runner
from exporter.runtimes.playback_runner import dense_name
from exporter.targets import Target
from exporter.tensor_names import IMAGES, RAW_IMAGES

__all__ = [
    "CHECKSUMS",
    "MODEL",
    "REFERENCE",
    "REPORT",
    "SCHEDULE",
    "ExportFolder",
    "read_folder",
    "read_reference",
    "save_checksums",
    "save_raw_images",
    "save_reference",
    "verify_checksums",
]

CHECKSUMS = "SHA256SUMS"
REFERENCE = "reference.npz"
REPORT = "report.json"
SCHEDULE = "schedule.json"
MODEL = "model.json"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ExportFolder:
    """What an export folder holds for whoever runs its models."""

    place: Path
    models: Pair[LoweredFile]
    reference: Path

    @property
    def target(self) -> Target:
        """What both models were made for."""
        return self.models.pruned.artefact.target


def read_folder(folder: Path) -> ExportFolder:
    """Verify every file of an export folder, and find its models; what they are, their own metadata says.

    Raises:
        ArtefactError: It is no folder that `compile` left, a file is missing or another one, or of another model.
    """
    expected = "an export folder, which star-export compile leaves"
    report = folder / REPORT
    if not report.is_file():
        raise ArtefactError(str(folder), f"no {REPORT} in it" if folder.is_dir() else "no folder", expected)
    sums = verify_checksums(folder)
    try:
        told = json.loads(report.read_text(encoding="utf-8"))["files"]
        # A name alone: what is served lies in the folder, whatever a report says.
        files = Pair(*(folder / Path(told[role]).name for role in ("dense", "pruned")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            str(report), f"{type(error).__name__} {error}", "the report of a compilation"
        ) from None
    for name in (REPORT, REFERENCE, files.dense.name, files.pruned.name):
        if name not in sums:
            raise ArtefactError(str(folder / CHECKSUMS), f"no line for {name}", expected)
    return ExportFolder(folder, read_pair(files), folder / REFERENCE)


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

    `images` as the model takes them, the outputs of the pruned model with its `keep_NN`, `score_NN` and a-STAR's
    `count_NN`, where tokens merge `into_NN` and `gap_NN`, and the outputs of the other as `dense_…`. With scores
    and gaps, flips can be judged without PyTorch.

    Raises:
        OutputError: The place cannot be written.
    """
    with reference, dense:
        results = reference.run({IMAGES: images})
        arrays = {
            IMAGES: images,
            **results,
            **{dense_name(name): array for name, array in dense.run({IMAGES: images}).items()},
        }
    with written_beside(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return arrays


def save_checksums(folder: Path, names: list[str]) -> None:
    """`SHA256SUMS` over the named files, in the form that `sha256sum --check` reads.

    Raises:
        OutputError: The place cannot be written.
    """
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in sorted(names)]
    with written_beside(folder / CHECKSUMS) as partial:
        partial.write_text("".join(lines), encoding="utf-8")


def save_raw_images(images: Array, batches: Sequence[int], folder: Path) -> list[str]:
    """The images as raw bytes for each batch size, repeated where there are too few; the names of the files.

    Raises:
        OutputError: The place cannot be written.
    """
    names = [RAW_IMAGES.format(batch=batch) for batch in batches]
    for batch, name in zip(batches, names, strict=True):
        with written_beside(folder / name) as partial:
            partial.write_bytes(resized(images, batch).tobytes())
    return names


def verify_checksums(folder: Path) -> dict[str, str]:
    """Hold every file to `SHA256SUMS`; the digests by name.

    Raises:
        ArtefactError: There is no such list, or a file is missing or another one.
    """
    path = folder / CHECKSUMS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError) as error:
        raise ArtefactError(str(path), str(error), "what star-export compile leaves") from None
    if not sums:
        raise ArtefactError(str(path), "an empty list", "what star-export compile leaves")
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in sums):
        raise ArtefactError(str(path), "a file outside the folder", "files of the folder alone")
    for name, expected in sums.items():
        if not (folder / name).is_file():
            raise ArtefactError(str(folder / name), "no such file", f"the one that {CHECKSUMS} lists")
        got = sha256_of(folder / name)
        if got != expected:
            raise ArtefactError(
                str(folder / name), f"sha256 {got[:12]}…", f"{expected[:12]}… of {CHECKSUMS}", "copy it again"
            )
    return sums
