"""A folder after another compilation into it: what it had is gone, and what others put there stays."""

from pathlib import Path

import numpy as np
import pytest

from exporter.errors import OutputError
from exporter.files import sha256_of
from exporter.records import Pair
from exporter.runtimes.tensorrt.manifest import engine_path
from exporter.workflows.folders.export_folder import (
    finish_folder,
    remove_stale,
    save_checksums,
    save_raw_images,
    verify_checksums,
)
from tests.folders import write_engines, write_folder
from tests.runtimes.tensorrt.fake_cuda import manifest


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with a calibration and raw images of two batches, of which `bench` wrote one."""
    write_folder(tmp_path)
    (tmp_path / "calibration.safetensors").write_bytes(b"sums")
    images = np.zeros((1, 3, 4, 4), np.float32)
    save_checksums(tmp_path, [*names_in(tmp_path) - {"SHA256SUMS"}, *save_raw_images(images, (3,), tmp_path)])
    save_raw_images(images, (64,), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def test_what_the_new_compilation_did_not_write_is_removed(earlier: Path) -> None:
    kept = ["report.json", "model.json"]
    remove_stale(earlier, kept)
    assert names_in(earlier) == {*kept, "SHA256SUMS", "notes.txt"}
    assert not (earlier / "inputs").exists()


def test_a_calibration_that_was_given_stays_and_is_listed(earlier: Path) -> None:
    own, model = earlier / "calibration.safetensors", "model.json"
    finish_folder(earlier, [model], own)
    assert names_in(earlier) == {model, own.name, "SHA256SUMS", "notes.txt"}
    assert verify_checksums(earlier).keys() == {model, own.name}
    finish_folder(earlier, [model], earlier / "notes.txt")
    assert verify_checksums(earlier).keys() == {model}
    assert not own.exists()


def test_without_a_list_nothing_is_removed(earlier: Path) -> None:
    there = names_in(earlier)
    for content in ("", f"{'0' * 64}  ../passwd\n"):
        (earlier / "SHA256SUMS").write_text(content)
        remove_stale(earlier, ["report.json"])
        assert names_in(earlier) == there
    (earlier / "SHA256SUMS").unlink()
    remove_stale(earlier, ["report.json"])
    assert names_in(earlier) == there - {"SHA256SUMS"}


def test_engines_stay_where_their_models_do(tmp_path: Path) -> None:
    """A compilation of the same settings writes the same bytes, and a build takes minutes."""
    files = write_folder(tmp_path)
    listed = names_in(tmp_path) - {"SHA256SUMS"}
    for onnx in vars(files).values():
        write_engines(Pair(onnx, onnx), manifest(onnx=onnx.name, onnx_sha256=sha256_of(onnx)))
    (tmp_path / "engines/timing.cache").write_bytes(b"cache")
    built = names_in(tmp_path)
    remove_stale(tmp_path, listed)
    assert names_in(tmp_path) == built
    files.pruned.write_bytes(files.pruned.read_bytes() + b"\0")
    remove_stale(tmp_path, listed)
    old = engine_path(tmp_path / "engines", files.pruned).relative_to(tmp_path)
    assert names_in(tmp_path) == built - {str(old), str(old.with_suffix(".json"))}


def test_what_cannot_be_removed_is_told(earlier: Path) -> None:
    (earlier / "schedule.json").unlink()
    (earlier / "schedule.json").mkdir()
    with pytest.raises(OutputError, match=r"schedule\.json"):
        remove_stale(earlier, ["report.json"])
