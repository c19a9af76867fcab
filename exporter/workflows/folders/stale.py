"""Make the folder of a compilation whole: what an earlier one left there is removed, and nothing else."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from exporter.errors import ArtefactError, OutputError, reason_of
from exporter.files import sha256_of
from exporter.runtimes.tensorrt.layer_info import layers_path
from exporter.runtimes.tensorrt.manifest import ENGINES, manifest_path, read_manifest
from exporter.workflows.folders.checksums import read_checksums, save_checksums
from exporter.workflows.folders.export_folder import CALIBRATION, raw_images_in

__all__ = ["finish_folder", "remove_stale"]


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
