"""Write, read and verify export folders, which are copied from the export to the deployment machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile, read_pair
from exporter.errors import ArtefactError, reason_of
from exporter.evaluation.benchmark.batch_sweep import filled_batch
from exporter.files import path_of, regular, sha256_of, written_beside
from exporter.formats.canonical_json import load_json, read_json
from exporter.formats.npz import read_arrays
from exporter.records import ModelSpec, Pair, Schedule
from exporter.runtimes.base import Runner
from exporter.runtimes.playback_runner import dense_name
from exporter.schedule.checks import check_fits
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
    """The path of an export folder, its models and its reference file."""

    place: Path
    models: Pair[LoweredFile]
    reference: Path

    @property
    def target(self) -> Target:
        """The target of both models."""
        return self.models.pruned.artefact.target


def read_folder(folder: Path) -> ExportFolder:
    """Verify the checksums of an export folder, and read the metadata of its models.

    Raises:
        ArtefactError: This is no export folder, a file is missing or changed, or a file is of another model.
    """
    expected = "an export folder, which star-export compile writes"
    report = folder / REPORT
    if not report.is_file():
        raise ArtefactError(str(folder), f"no {REPORT} in it" if folder.is_dir() else "no folder", expected)
    sums = verify_checksums(folder)
    try:
        told = read_json(report)
        # Only the file name is used, so a report cannot point outside the folder.
        files = Pair(*(folder / Path(told["files"][role]).name for role in ("dense", "pruned")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(str(report), reason_of(error), "the report of a compilation") from None
    for name in (REPORT, REFERENCE, SCHEDULE, MODEL, files.dense.name, files.pruned.name):
        if name not in sums:
            raise ArtefactError(str(folder / CHECKSUMS), f"no line for {name}", expected)
    models = read_pair(files)
    _check_documents(folder, told, models.pruned)
    return ExportFolder(folder, models, folder / REFERENCE)


def _check_documents(folder: Path, report: dict[str, Any], pruned: LoweredFile) -> None:
    """Raise ArtefactError where a document of the folder says something else than the model's own metadata."""
    artefact, told = pruned.artefact, report.get("target", pruned.artefact.target.name)
    check_fits(artefact.schedule, artefact.spec)
    same = {
        REPORT: told == artefact.target.name,
        SCHEDULE: load_json(Schedule, folder / SCHEDULE) == artefact.schedule,
        MODEL: load_json(ModelSpec, folder / MODEL) == artefact.spec,
    }
    for name, fits in same.items():
        if not fits:
            got = "another target, schedule or shape"
            raise ArtefactError(str(folder / name), got, f"what {pruned.path.name} says", "compile it again")


def read_reference(path: Path) -> dict[str, Array]:
    """Read `reference.npz`: real `images` [n, 3, H, W] as the models take them, and PyTorch's outputs for them.

    Raises:
        ArtefactError: The file is missing, or contains no images.
    """
    expected = f"a {REFERENCE}, which star-export compile writes"
    try:
        reference = read_arrays(path)
    except ValueError as error:
        raise ArtefactError(str(path), reason_of(error), expected) from None
    if IMAGES not in reference:
        raise ArtefactError(str(path), f"no {IMAGES}", expected)
    images = reference[IMAGES]
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "fiu" for array in reference.values()):
        raise ArtefactError(str(path), "a member that is no array of real numbers", expected)
    if images.ndim != 4 or not len(images):
        raise ArtefactError(str(path), f"images of shape {list(images.shape)}", expected)
    if images.dtype.kind not in "fu" or not np.isfinite(images).all():
        raise ArtefactError(str(path), f"images of {images.dtype} that are no finite pixels", expected)
    return reference


def save_reference(reference: Runner, dense: Runner, images: Array, path: Path) -> dict[str, Array]:
    """Write real images and PyTorch's outputs for them as `reference.npz`, and return the arrays.

    The arrays are `images` as the models take them; the outputs of the pruned model with `keep_NN`, `score_NN`, for
    a-STAR `count_NN`, with merging `into_NN` and `gap_NN`; and the outputs of the dense model as `dense_…`. Scores
    and gaps give the margin of a flip without PyTorch.

    Raises:
        OutputError: The file cannot be written.
    """
    with reference, dense:
        results = reference.run({IMAGES: images})
        arrays = {
            IMAGES: images,
            **results,
            **{dense_name(name): array for name, array in dense.run({IMAGES: images}).items()},
        }
    with written_beside(path) as partial, partial.open("wb") as file:
        # NumPy 1 would store a keyword as an array; the stub takes an array's name for one.
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return arrays


def save_checksums(folder: Path, names: list[str]) -> None:
    """Write `SHA256SUMS` over the named files, in the format of `sha256sum --check`.

    Raises:
        OutputError: The file cannot be written.
    """
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in sorted(names)]
    with written_beside(folder / CHECKSUMS) as partial:
        partial.write_text("".join(lines), encoding="utf-8")


def save_raw_images(images: Array, batches: Sequence[int], folder: Path) -> list[str]:
    """Write the images as raw bytes for each batch size, repeated to fill the batch; return the file names.

    Raises:
        OutputError: A file cannot be written.
    """
    names = [RAW_IMAGES.format(batch=batch) for batch in batches]
    for batch, name in zip(batches, names, strict=True):
        with written_beside(folder / name) as partial:
            partial.write_bytes(filled_batch(images, batch).tobytes())
    return names


def verify_checksums(folder: Path) -> dict[str, str]:
    """Verify every file against `SHA256SUMS`; return the digests by name.

    Raises:
        ArtefactError: The list is missing, or a file is missing or changed.
    """
    path = folder / CHECKSUMS
    try:
        lines = regular(path).read_text(encoding="utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        for name in sums:
            path_of(str(folder.absolute() / name))
    except (OSError, ValueError) as error:
        raise ArtefactError(str(path), reason_of(error), "a list that star-export compile wrote") from None
    if not sums:
        raise ArtefactError(str(path), "an empty list", "a list that star-export compile wrote")
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in sums):
        raise ArtefactError(str(path), "a file outside the folder", "only files of the folder")
    for name, expected in sums.items():
        if not (folder / name).is_file():
            raise ArtefactError(str(folder / name), "no such file", f"the one that {CHECKSUMS} lists")
        got = sha256_of(folder / name)
        if got != expected:
            raise ArtefactError(
                str(folder / name), f"sha256 {got[:12]}…", f"{expected[:12]}… of {CHECKSUMS}", "copy it again"
            )
    return sums
