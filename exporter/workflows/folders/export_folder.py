"""Write, read and verify export folders, which are copied from the export to the deployment machine."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile, read_pair
from exporter.errors import ArtefactError, reason_of
from exporter.evaluation.benchmark.batch_sweep import filled_batch
from exporter.files import regular, written_beside
from exporter.formats.canonical_json import load_json, read_json
from exporter.records import ModelSpec, Pair, Schedule
from exporter.schedule.fits import check_fits
from exporter.targets import Target
from exporter.tensor_names import ALL_VARIANTS, IMAGES, RAW_IMAGES, variant_path
from exporter.workflows.folders.checksums import CHECKSUMS, verify_checksums
from exporter.workflows.folders.reference import REFERENCE, read_reference, read_whole

__all__ = [
    "CALIBRATION",
    "MODEL",
    "PAGE",
    "RECIPE",
    "REPORT",
    "SCHEDULE",
    "ExportFolder",
    "raw_images_in",
    "read_folder",
    "save_raw_images",
]

REPORT = "report.json"
SCHEDULE = "schedule.json"
MODEL = "model.json"
RECIPE = "recipe.json"
CALIBRATION = "calibration.safetensors"
# For readers alone.
PAGE = "report.html"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ExportFolder:
    """The path of an export folder, its models, its reference file, and how many images that has."""

    place: Path
    models: Pair[LoweredFile]
    reference: Path
    images: int

    @property
    def target(self) -> Target:
        """The target of both models."""
        return self.models.pruned.artefact.target

    def read_reference(self) -> dict[str, Array]:
        """Return the arrays of the reference file, which is checked whole.

        Raises:
            ArtefactError: It is not what PyTorch's models gave for so many images.
        """
        return read_whole(self.reference, self.models.pruned.artefact, self.images)


def read_folder(folder: Path) -> ExportFolder:
    """Verify the checksums of an export folder, and read the metadata of its models.

    Raises:
        ArtefactError: This is no export folder, a file is missing or changed, or a file is of another model.
    """
    expected = "an export folder, which star-export compile writes"
    report = folder / REPORT
    try:
        got = "" if report.is_file() else f"no {REPORT} in it" if folder.is_dir() else "no folder"
    except OSError as error:  # a folder that may not be entered
        got = reason_of(error)
    if got:
        raise ArtefactError(str(folder), got, expected)
    sums = verify_checksums(folder)
    try:
        told = read_json(report)
        # Only the file name is used, so a report cannot point outside the folder.
        files = Pair(*(folder / Path(told["files"][role]).name for role in ("dense", "pruned")))
        images = int(told["parity"]["images"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(str(report), reason_of(error), "the report of a compilation") from None
    for name in (REPORT, REFERENCE, SCHEDULE, MODEL, files.dense.name, files.pruned.name):
        if name not in sums:
            raise ArtefactError(str(folder / CHECKSUMS), f"no line for {name}", expected)
    models = read_pair(files)
    _check_documents(folder, told, models.pruned)
    found = ExportFolder(folder, models, folder / REFERENCE, images)
    _check_unlisted(found, sums)
    return found


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


def _check_unlisted(found: ExportFolder, sums: Container[str]) -> None:
    """Raise ArtefactError for a variant without a checksum, and for raw images that are not those of the reference.

    `bench` adds raw images for further batch sizes, which have none.
    """
    for role in ALL_VARIANTS:
        variant = variant_path(found.models.pruned.path, role)
        if variant.exists() and variant.name not in sums:
            raise ArtefactError(str(variant), f"no line in {CHECKSUMS}", "one for each variant", "remove it")
    for path, batch in raw_images_in(found.place):
        if path.relative_to(found.place).as_posix() in sums:
            continue
        images = read_reference(found.reference)[IMAGES]
        # The size first: a name may say any number.
        size = batch * images[:1].nbytes
        if path.stat().st_size != size or regular(path).read_bytes() != filled_batch(images, batch).tobytes():
            raise ArtefactError(str(path), "other images", f"those of {REFERENCE}", "remove it")


def raw_images_in(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files of raw images in an export folder, each with its batch size."""
    before, after = RAW_IMAGES.split("{batch}")
    for path in sorted(folder.glob(f"{before}*{after}")):
        batch = path.relative_to(folder).as_posix()[len(before) : -len(after)]
        if batch.isdecimal():
            yield path, int(batch)


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
