"""Export folders, copied from the export to the deployment machine: made whole, listed by checksum, verified."""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile, read_pair
from exporter.errors import ArtefactError, OutputError, UserError, reason_of
from exporter.evaluation.batch_sweep import filled_batch
from exporter.files import path_of, regular, sha256_of, written_beside
from exporter.formats.canonical_json import load_json, read_json
from exporter.records import ModelSpec, Pair, Schedule
from exporter.runtimes.tensorrt.layer_info import layers_path
from exporter.runtimes.tensorrt.manifest import ENGINES, manifest_path, read_manifest
from exporter.schedule.fits import check_fits
from exporter.targets import Target
from exporter.tensor_names import ALL_VARIANTS, IMAGES, RAW_IMAGES, variant_path
from exporter.workflows.folders.reference import REFERENCE, read_reference, read_whole

__all__ = [
    "CALIBRATION",
    "CHECKSUMS",
    "MODEL",
    "PAGE",
    "RECIPE",
    "REPORT",
    "SCHEDULE",
    "ExportFolder",
    "finish_folder",
    "raw_images_in",
    "read_checksums",
    "read_folder",
    "remove_stale",
    "save_checksums",
    "save_raw_images",
    "verify_checksums",
]

REPORT = "report.json"
SCHEDULE = "schedule.json"
MODEL = "model.json"
RECIPE = "recipe.json"
CALIBRATION = "calibration.safetensors"
# For readers alone.
PAGE = "report.html"
# In the format of `sha256sum --check`.
CHECKSUMS = "SHA256SUMS"

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
        images = int(told["parity"]["pruned"]["images"])
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


def save_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write `SHA256SUMS` over the named files.

    Raises:
        OutputError: The file cannot be written, or a named file is gone.
    """
    expected = "the file just written: does another command write here?"
    lines = [f"{_digest(folder / name, OutputError, expected)}  {name}\n" for name in sorted(names)]
    with written_beside(folder / CHECKSUMS) as partial:
        partial.write_text("".join(lines), encoding="utf-8")


def read_checksums(folder: Path) -> dict[str, str]:
    """Read `SHA256SUMS`; return the digests by name. The files themselves are not looked at.

    Raises:
        ArtefactError: The list is missing, empty or none, or names a file outside the folder.
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
    return sums


def verify_checksums(folder: Path) -> dict[str, str]:
    """Verify every file against `SHA256SUMS`; return the digests by name.

    Raises:
        ArtefactError: The list is missing, or a file is missing or changed.
    """
    sums = read_checksums(folder)
    for name, expected in sums.items():
        if not (folder / name).is_file():
            raise ArtefactError(str(folder / name), "no such file", f"the one that {CHECKSUMS} lists")
        got = _digest(folder / name, ArtefactError, "a file that can be read")
        if got != expected:
            raise ArtefactError(
                str(folder / name), f"sha256 {got[:12]}…", f"{expected[:12]}… of {CHECKSUMS}", "copy it again"
            )
    return sums


def _digest(path: Path, kind: type[UserError], expected: str) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise kind(str(path), reason_of(error), expected) from None


def finish_folder(folder: Path, names: Collection[str], given: Path | None) -> None:
    """Remove what an earlier compilation left, and write the list of the new one's files.

    Args:
        folder: The export folder, with the earlier list.
        names: The files of the new compilation, already written.
        given: The calibration that it was given; as a file of the folder, it stays.

    Raises:
        OutputError: A file cannot be removed, or the list cannot be written.
    """
    own = folder / CALIBRATION
    kept = {CALIBRATION} if given is not None and own.exists() and own.samefile(given) else set()
    listed = {*names, *kept}
    remove_stale(folder, listed)
    save_checksums(folder, listed)


def remove_stale(folder: Path, names: Collection[str]) -> None:
    """Remove the files of an earlier compilation that are not those of the new one.

    They are what its `SHA256SUMS` lists, raw images that `bench` added, and engines of models that are gone or
    changed. What no list names is not ours, and stays; without a readable list, nothing is removed.

    Args:
        folder: The export folder, with the earlier list.
        names: The files of the new compilation, already written.

    Raises:
        OutputError: A file cannot be removed.
    """
    try:
        listed = read_checksums(folder)
    except ArtefactError:
        return
    raw = (path for path, _ in raw_images_in(folder))
    old = {folder / name for name in listed} | {*raw} | {*_old_engines(folder)}
    for path in sorted(old - {folder / name for name in names}):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            got = reason_of(error)
            raise OutputError(str(path), got, "to remove it: an earlier compilation left it") from None
        with suppress(OSError):  # the folder is left where it holds other files
            path.parent.rmdir()


def _old_engines(folder: Path) -> set[Path]:
    """Return the files of engines that were not built from the models of the folder as they are now."""
    old: set[Path] = set()
    for engine in (folder / ENGINES).glob("*.engine"):
        try:
            manifest = read_manifest(engine)
            onnx = folder / Path(manifest.onnx).name
            fits = onnx.is_file() and sha256_of(onnx) == manifest.onnx_sha256
        except ArtefactError:
            fits = False
        if not fits:
            old |= {engine, manifest_path(engine), layers_path(engine)}
    return old
