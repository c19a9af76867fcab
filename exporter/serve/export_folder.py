"""Export folders, copied from the export to the deployment machine: made whole, listed by checksum, verified."""

from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from pathlib import Path

import numpy as np

from exporter.core.base.artefact import Artefact, read_pair
from exporter.core.base.canonical_json import read_json
from exporter.core.base.errors import (
    ArtefactError,
    OutputError,
    as_written,
    reason_of,
)
from exporter.core.base.files import regular, sha256_of, written_beside
from exporter.core.base.npz import read_arrays
from exporter.core.base.records import Pair
from exporter.core.base.tensor_names import (
    IMAGES,
    RAW_IMAGES,
    Array,
)
from exporter.engines.layers import layers_path
from exporter.engines.manifest import (
    ENGINES,
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
README = "README.txt"
# In the format of `sha256sum --check`.
CHECKSUMS = "SHA256SUMS"
AN_EXPORT = "an export folder, which star-export compile writes"


def read_models(folder: Path) -> Pair[Artefact]:
    """Verify the checksums of an export folder, and read the metadata of its models.

    The checksums are its border: a file whose bytes are those of its line is as star-export wrote it, and each file
    that is read has a line.
    """
    if not (folder / REPORT).is_file():
        got = f"no {REPORT} in it" if folder.is_dir() else "no folder"
        raise ArtefactError(folder, got, AN_EXPORT)
    sums = verify_checksums(folder)
    with as_written(folder / REPORT):
        files = read_json(folder / REPORT)["files"]
        # Only the file name is used, so a report cannot point outside the folder.
        paths = Pair(*(folder / Path(files[role]).name for role in ("dense", "pruned")))
    with as_written(folder / CHECKSUMS, "the list"):
        for name in (REPORT, REFERENCE, paths.dense.name, paths.pruned.name):
            if name not in sums:
                raise ValueError(f"no line for {name}")
    return read_pair(paths)


def raw_images_in(folder: Path) -> list[Path]:
    """Return the files of raw images in an export folder."""
    return sorted(folder.glob(RAW_IMAGES.format(batch="*")))


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
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in sorted(names)]
    with written_beside(folder / CHECKSUMS) as partial:
        partial.write_text("".join(lines), encoding="utf-8")


def list_built(folder: Path) -> None:
    """Add the engines of a folder, what lies beside them, and all raw images to its `SHA256SUMS`."""
    listed = [name for name in read_checksums(folder) if not _is_of_engine(name)]
    raw = [_name_in(folder, path) for path in raw_images_in(folder)]
    save_checksums(folder, {*listed, *raw, *_engine_files(folder)})


def _name_in(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _engine_files(folder: Path) -> set[str]:
    """Return the names of the engines, with their manifests and layers; no cache is among them."""
    return {
        _name_in(folder, path)
        for ending in (".engine", ".json")
        for path in (folder / ENGINES).glob(f"*{ending}")
    }


def _is_of_engine(name: str) -> bool:
    return name.startswith(f"{ENGINES}/")


def read_checksums(folder: Path) -> dict[str, str]:
    """Read `SHA256SUMS`; return the digests by name. The files themselves are not looked at."""
    path = folder / CHECKSUMS
    with as_written(path, "the list"):
        lines = regular(path).read_text(encoding="utf-8").splitlines()
        sums = {
            name: digest for digest, name in (line.split("  ", 1) for line in lines)
        }
        if not sums:
            raise ValueError("an empty list")
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in sums):
            raise ValueError("a file outside the folder")
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
        got = sha256_of(file)
        if got != expected:
            listed = f"{expected[:12]}… of {CHECKSUMS}"
            raise ArtefactError(file, f"sha256 {got[:12]}…", listed, "copy it again")
    return sums


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
    old = {folder / name for name in listed if not _is_of_engine(name)}
    old |= {*raw_images_in(folder)} | _old_engines(folder)
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
            old |= {engine, manifest_path(engine), layers_path(engine)}
    return old


REFERENCE = "reference.npz"


def read_reference(path: Path) -> dict[str, Array]:
    """Read `reference.npz`: real `images` [n, 3, H, W] as the models take them, and PyTorch's outputs for them."""
    with as_written(path):
        arrays = read_arrays(path)
        if not np.isfinite(arrays[IMAGES]).min():  # of no image there is none
            raise ValueError(f"{IMAGES} that are no pixels")
        return arrays


def save_reference(reference: Mapping[str, Array], path: Path) -> None:
    """Write real images and PyTorch's outputs for them as `reference.npz`.

    The arrays are `images` as the models take them; the outputs of the pruned model with `keep_NN`, `score_NN`, for
    a-STAR `count_NN`, with merging `into_NN` and `gap_NN`; and the outputs of the dense model as `dense_…`. Scores
    and gaps give the margin of a flip without PyTorch.
    """
    with written_beside(path) as partial, partial.open("wb") as file:
        # NumPy 1 would store a keyword as an array; the stub takes an array's name for one.
        np.savez_compressed(file, **reference)  # type: ignore[arg-type]
