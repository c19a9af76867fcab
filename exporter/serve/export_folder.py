"""Export folders, copied from the export to the deployment machine: made whole, listed by checksum, verified."""

from collections.abc import (
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.core.base.artefact import Artefact, read_pair
from exporter.core.base.canonical_json import load_json, read_json
from exporter.core.base.errors import ArtefactError, OutputError, UserError, reason_of
from exporter.core.base.files import path_of, regular, sha256_of, written_beside
from exporter.core.base.npz import read_arrays
from exporter.core.base.records import ModelSpec, Pair, Schedule
from exporter.core.base.targets import Target
from exporter.core.base.tensor_names import (
    ALL_INSTRUMENTED,
    IMAGES,
    RAW_IMAGES,
    Array,
    count_name,
    instrumented_path,
    keep_layers,
    keep_name,
)
from exporter.core.schedule.checks import check_fits
from exporter.core.schedule.plan import keep_everything
from exporter.core.verify.playback_runner import dense_name, recorded
from exporter.core.verify.runner import TensorInfo
from exporter.engines.layer_info import layers_path
from exporter.engines.manifest import (
    ENGINES,
    commands_path,
    manifest_path,
    read_manifest,
)
from exporter.measure.batch_sweep import filled_batch

REPORT = "report.json"
SCHEDULE = "schedule.json"
MODEL = "model.json"
RECIPE = "recipe.json"
CALIBRATION = "calibration.safetensors"
# For readers alone.
PAGE = "report.html"
TRY_PAGE = "try.html"
# In the format of `sha256sum --check`.
CHECKSUMS = "SHA256SUMS"
AN_EXPORT = "an export folder, which star-export compile writes"


@dataclass(frozen=True)
class ExportFolder:
    """The path of an export folder, its models, its reference file, and how many images that has."""

    place: Path
    models: Pair[Artefact]
    reference: Path
    images: int

    @property
    def target(self) -> Target:
        """The target of both models."""
        return self.models.pruned.target

    def read_reference(self) -> dict[str, Array]:
        """Return the arrays of the reference file, which is checked whole."""
        return read_whole(self.reference, self.models.pruned, self.images)


def read_folder(folder: Path) -> ExportFolder:
    """Verify the checksums of an export folder, and read the metadata of its models."""
    _check_report(folder)
    sums = verify_checksums(folder)
    report = folder / REPORT
    try:
        content = read_json(report)
        # Only the file name is used, so a report cannot point outside the folder.
        names = [Path(content["files"][role]).name for role in ("dense", "pruned")]
        files = Pair(*(folder / name for name in names))
        images = int(content["parity"]["pruned"]["images"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected = "the report of a compilation"
        raise ArtefactError(report, reason_of(error), expected) from None
    documents = (REPORT, REFERENCE, SCHEDULE, MODEL)
    for name in (*documents, files.dense.name, files.pruned.name):
        if name not in sums:
            raise ArtefactError(folder / CHECKSUMS, f"no line for {name}", AN_EXPORT)
    models = read_pair(files)
    _check_documents(folder, content, models.pruned)
    export = ExportFolder(folder, models, folder / REFERENCE, images)
    _check_unlisted(export, sums)
    return export


def _check_report(folder: Path) -> None:
    """Raise ArtefactError where a folder has no report, or may not be entered."""
    try:
        got = f"no {REPORT} in it" if folder.is_dir() else "no folder"
        if (folder / REPORT).is_file():
            return
    except OSError as error:
        got = reason_of(error)
    raise ArtefactError(folder, got, AN_EXPORT)


def _check_documents(folder: Path, report: dict[str, Any], pruned: Artefact) -> None:
    """Raise ArtefactError where a document of the folder says something else than the model's own metadata."""
    target = report.get("target", pruned.target.name)
    check_fits(pruned.schedule, pruned.spec)
    same = {
        REPORT: target == pruned.target.name,
        SCHEDULE: load_json(Schedule, folder / SCHEDULE) == pruned.schedule,
        MODEL: load_json(ModelSpec, folder / MODEL) == pruned.spec,
    }
    for name, fits in same.items():
        if not fits:
            got = "another target, schedule or shape"
            raise ArtefactError(
                folder / name,
                got,
                f"what {pruned.path.name} says",
                "compile it again",
            )


def _check_unlisted(export: ExportFolder, sums: Container[str]) -> None:
    """Raise ArtefactError for a variant without a checksum, and for raw images that are not those of the reference.

    `bench` adds raw images for further batch sizes, which have none.
    """
    for role in ALL_INSTRUMENTED:
        variant = instrumented_path(export.models.pruned.path, role)
        if variant.exists() and variant.name not in sums:
            raise ArtefactError(
                variant,
                f"no line in {CHECKSUMS}",
                "one for each variant",
                "remove it",
            )
    for path, batch in raw_images_in(export.place):
        if _name_in(export.place, path) in sums:
            continue
        images = read_reference(export.reference)[IMAGES]
        # The size first: a name may say any number.
        size = batch * images[:1].nbytes
        if (
            path.stat().st_size != size
            or regular(path).read_bytes() != filled_batch(images, batch).tobytes()
        ):
            raise ArtefactError(
                path, "other images", f"those of {REFERENCE}", "remove it"
            )


def raw_images_in(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files of raw images in an export folder, each with its batch size."""
    before, after = RAW_IMAGES.split("{batch}")
    for path in sorted(folder.glob(f"{before}*{after}")):
        batch = _name_in(folder, path)[len(before) : -len(after)]
        if batch.isdecimal():
            yield path, int(batch)


def save_raw_images(images: Array, batches: Sequence[int], folder: Path) -> list[str]:
    """Write the images as raw bytes for each batch size, repeated to fill the batch; return the file names."""
    names = [RAW_IMAGES.format(batch=batch) for batch in batches]
    for batch, name in zip(batches, names, strict=True):
        with written_beside(folder / name) as partial:
            partial.write_bytes(filled_batch(images, batch).tobytes())
    return names


def add_raw_images(images: Array, batches: Iterable[int], folder: Path) -> None:
    """Write the images as `save_raw_images` does, for those batch sizes for which the folder has no file."""
    lacking = [
        batch
        for batch in batches
        if not (folder / RAW_IMAGES.format(batch=batch)).is_file()
    ]
    save_raw_images(images, lacking, folder)


def save_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write `SHA256SUMS` over the named files."""
    expected = "the file just written: does another command write here?"
    lines = [
        f"{_digest(folder / name, OutputError, expected)}  {name}\n"
        for name in sorted(names)
    ]
    with written_beside(folder / CHECKSUMS) as partial:
        partial.write_text("".join(lines), encoding="utf-8")


def list_built(folder: Path) -> None:
    """Add the engines of a folder, what lies beside them, and all raw images to its `SHA256SUMS`."""
    listed = [name for name in read_checksums(folder) if not _is_of_engine(name)]
    raw = [_name_in(folder, path) for path, _ in raw_images_in(folder)]
    save_checksums(folder, {*listed, *raw, *_engine_files(folder)})


def _name_in(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _engine_files(folder: Path) -> set[str]:
    """Return the names of the engines, with their manifests, layers and commands; no cache is among them."""
    return {
        _name_in(folder, path)
        for ending in (".engine", ".json", ".commands.txt")
        for path in (folder / ENGINES).glob(f"*{ending}")
    }


def _is_of_engine(name: str) -> bool:
    return name.startswith(f"{ENGINES}/")


def read_checksums(folder: Path) -> dict[str, str]:
    """Read `SHA256SUMS`; return the digests by name. The files themselves are not looked at."""
    path = folder / CHECKSUMS
    try:
        lines = regular(path).read_text(encoding="utf-8").splitlines()
        sums = {
            name: digest for digest, name in (line.split("  ", 1) for line in lines)
        }
        for name in sums:
            path_of(str(folder.absolute() / name))
    except (OSError, ValueError) as error:
        raise ArtefactError(
            path, reason_of(error), "a list that star-export compile wrote"
        ) from None
    if not sums:
        raise ArtefactError(
            path, "an empty list", "a list that star-export compile wrote"
        )
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in sums):
        raise ArtefactError(
            path, "a file outside the folder", "only files of the folder"
        )
    return sums


def verify_checksums(folder: Path) -> dict[str, str]:
    """Verify every file against `SHA256SUMS`; return the digests by name.

    Engines are left to their manifests, which are read where one is used: it may be built again.
    """
    sums = read_checksums(folder)
    for name, expected in sums.items():
        if _is_of_engine(name):
            continue
        file = folder / name
        if not file.is_file():
            raise ArtefactError(file, "no such file", f"the one that {CHECKSUMS} lists")
        got = _digest(file, ArtefactError, "a file that can be read")
        if got != expected:
            listed = f"{expected[:12]}… of {CHECKSUMS}"
            raise ArtefactError(file, f"sha256 {got[:12]}…", listed, "copy it again")
    return sums


def _digest(path: Path, kind: type[UserError], expected: str) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise kind(str(path), reason_of(error), expected) from None


def finish_folder(
    folder: Path, names: Collection[str], calibration: Path | None
) -> None:
    """Remove what an earlier compilation left, and write the list of the new one's files.

    `names` are the files of the new compilation, already written. `calibration` is the one that it was given; as a
    file of the folder, it stays.
    """
    staying = set[str]()
    if calibration is not None and calibration.resolve().is_relative_to(
        folder.resolve()
    ):
        staying = {str(calibration.resolve().relative_to(folder.resolve()))}
    remove_stale(folder, {*names, *staying})
    # Of methods that were compared before, one may have left it in a folder of its own: it is no file of this list.
    save_checksums(folder, {*names, *(staying & {CALIBRATION}), *_engine_files(folder)})


def remove_stale(folder: Path, names: Collection[str]) -> None:
    """Remove the files of an earlier compilation that are not those of the new one.

    They are what its `SHA256SUMS` lists, raw images that `bench` added, and engines of models that are gone
    or changed. What no list names is not ours, and stays; without a readable list, nothing is removed.
    `names` are the files of the new compilation, already written.
    """
    try:
        listed = read_checksums(folder)
    except ArtefactError:
        return
    raw = (path for path, _ in raw_images_in(folder))
    old = {folder / name for name in listed if not _is_of_engine(name)}
    old |= {*raw} | _old_engines(folder)
    for path in sorted(old - {folder / name for name in names}):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            got = reason_of(error)
            raise OutputError(
                path, got, "to remove it: an earlier compilation left it"
            ) from None
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
            old |= {
                engine,
                manifest_path(engine),
                layers_path(engine),
                commands_path(engine),
            }
    return old


REFERENCE = "reference.npz"


def read_reference(path: Path) -> dict[str, Array]:
    """Read `reference.npz`: real `images` [n, 3, H, W] as the models take them, and PyTorch's outputs for them."""
    expected = f"a {REFERENCE}, which star-export compile writes"
    try:
        reference = read_arrays(path)
    except ValueError as error:
        raise ArtefactError(path, reason_of(error), expected) from None
    if IMAGES not in reference:
        raise ArtefactError(path, f"no {IMAGES}", expected)
    images = reference[IMAGES]
    if not all(
        isinstance(array, np.ndarray) and array.dtype.kind in "fiu"
        for array in reference.values()
    ):
        raise ArtefactError(path, "a member that is no array of real numbers", expected)
    if images.ndim != 4 or not len(images):
        raise ArtefactError(path, f"images of shape {list(images.shape)}", expected)
    if images.dtype.kind not in "fu" or not np.isfinite(images).all():
        raise ArtefactError(
            path, f"images of {images.dtype} that are no finite pixels", expected
        )
    _check_decisions(path, reference)
    return reference


def read_whole(path: Path, artefact: Artefact, images: int) -> dict[str, Array]:
    """Read `reference.npz` and check all of it against the pruned model and the number of images recorded."""
    reference, wanted = read_reference(path), _members(artefact)
    for name in sorted(reference.keys() ^ wanted.keys()):
        got = f"no {name}" if name in wanted else f"an unknown member {name}"
        expected = f"the members {', '.join(sorted(wanted))}"
        raise ArtefactError(path, got, expected, "compile it again")
    for name, array in reference.items():
        info = replace(wanted[name], shape=(images, *wanted[name].shape[1:]))
        fits = len(array.shape) == len(info.shape) and all(
            size in ("", length)
            for length, size in zip(array.shape, info.shape, strict=True)
        )
        if str(array.dtype) != info.dtype or not fits:
            got = str(TensorInfo(name, array.shape, str(array.dtype)))
            raise ArtefactError(path, got, str(info), "compile it again")
        if name == IMAGES:
            continue
        is_real = np.isfinite(array)
        if array.dtype.kind != "f":
            # Indices and counts are of patches.
            is_real = (array >= 0) & (array <= artefact.spec.num_patches)
        if not is_real.all():
            got = f"{name} with {array[~is_real][0]}"
            raise ArtefactError(path, got, "what a model gives")
    return reference


def _members(artefact: Artefact) -> dict[str, TensorInfo]:
    """Return what a reference of a pruned model has, by name."""
    spec = artefact.spec
    size = ("batch", *spec.preprocessing.input_size)
    members = [TensorInfo(IMAGES, size, str(artefact.input_kind))]
    members += recorded(spec, artefact.schedule)
    for info in recorded(spec, keep_everything(spec)):
        members.append(replace(info, name=dense_name(info.name)))
    return {info.name: info for info in members}


def _check_decisions(path: Path, reference: dict[str, Array]) -> None:
    """Raise ArtefactError where the patches that a layer keeps are no whole numbers for each image."""
    images = len(reference[IMAGES])
    for layer in keep_layers(reference):
        for name, shape in (
            (keep_name(layer), [images, "k"]),
            (count_name(layer), [images]),
        ):
            array = reference.get(name)
            if array is None:
                continue
            fits = (
                array.dtype == np.int64
                and array.ndim == len(shape)
                and len(array) == images
                and array.size
            )
            if not fits:
                got = f"{name} {array.dtype} {list(array.shape)}"
                expected = f"int64 [{', '.join(map(str, shape))}]"
                raise ArtefactError(path, got, expected)


def save_reference(reference: Mapping[str, Array], path: Path) -> None:
    """Write real images and PyTorch's outputs for them as `reference.npz`.

    The arrays are `images` as the models take them; the outputs of the pruned model with `keep_NN`, `score_NN`, for
    a-STAR `count_NN`, with merging `into_NN` and `gap_NN`; and the outputs of the dense model as `dense_…`. Scores
    and gaps give the margin of a flip without PyTorch.
    """
    with written_beside(path) as partial, partial.open("wb") as file:
        # NumPy 1 would store a keyword as an array; the stub takes an array's name for one.
        np.savez_compressed(file, **reference)  # type: ignore[arg-type]
