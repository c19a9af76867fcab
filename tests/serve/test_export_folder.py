"""The export folder as a deployment reads it: its reference, its checksums, and what an earlier one left."""

from pathlib import Path

import numpy as np
import pytest

from exporter.core.base.errors import ArtefactError, OutputError
from exporter.core.base.files import sha256_of
from exporter.core.base.records import Pair
from exporter.core.base.targets import OPENVINO_BF16
from exporter.engines.manifest import engine_path
from exporter.serve.export_folder import (
    REFERENCE,
    finish_folder,
    read_checksums,
    read_models,
    read_reference,
    remove_stale,
    save_checksums,
    save_raw_images,
    verify_checksums,
)
from tests.engines.engines import manifest
from tests.folders import artefacts, write_engines, write_folder


def test_the_models_and_the_images_of_a_folder(tmp_path: Path) -> None:
    files = write_folder(tmp_path, OPENVINO_BF16)
    models = read_models(tmp_path)
    assert models.dense.path == files.dense
    assert models.pruned.path == files.pruned
    assert models == artefacts(OPENVINO_BF16)
    reference = read_reference(tmp_path / REFERENCE)
    assert reference.keys() >= {"images", "logits", "keep_02"}


@pytest.mark.parametrize(
    "unlisted", ["report.json", "reference.npz", "dense", "pruned"]
)
def test_every_file_that_is_read_has_a_checksum(tmp_path: Path, unlisted: str) -> None:
    paths = write_folder(tmp_path)
    names = {"dense": paths.dense.name, "pruned": paths.pruned.name}
    name = names.get(unlisted, unlisted)
    files = {"report.json", "reference.npz", *names.values()} - {name}
    save_checksums(tmp_path, files)
    with pytest.raises(ArtefactError, match=f"SHA256SUMS .* no line for {name}"):
        read_models(tmp_path)


@pytest.mark.parametrize(
    "report", [None, "{", "[]", "{}", '{"files": {"dense": "d.onnx"}}', '{"files": 3}']
)
def test_a_folder_that_is_none_of_ours(tmp_path: Path, report: str | None) -> None:
    if report is not None:
        (tmp_path / "report.json").write_text(report)
        save_checksums(tmp_path, ["report.json"])
    with pytest.raises(ArtefactError, match="need"):
        read_models(tmp_path)
    with pytest.raises(ArtefactError, match="no folder"):
        read_models(tmp_path / "none")


def test_raw_images_are_the_arrays_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    names = save_raw_images(images, (1, 4), tmp_path)
    assert names == ["inputs/images.batch1.bin", "inputs/images.batch4.bin"]
    one, four = (
        np.fromfile(tmp_path / name, np.float32).reshape(-1, 3, 4, 4) for name in names
    )
    np.testing.assert_array_equal(one, images[:1])
    np.testing.assert_array_equal(four, np.concatenate([images, images]))


def names_in(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with a calibration and raw images of two batches, of which `bench` wrote one."""
    write_folder(tmp_path)
    (tmp_path / "calibration.safetensors").write_bytes(b"sums")
    images = np.zeros((1, 3, 4, 4), np.float32)
    save_checksums(
        tmp_path,
        [
            *names_in(tmp_path) - {"SHA256SUMS"},
            *save_raw_images(images, (3,), tmp_path),
        ],
    )
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
    verify_checksums(earlier)
    assert read_checksums(earlier).keys() == {model, own.name}
    finish_folder(earlier, [model], earlier / "notes.txt")
    verify_checksums(earlier)
    assert read_checksums(earlier).keys() == {model}
    assert not own.exists()


def test_a_calibration_of_an_earlier_comparison_stays(tmp_path: Path) -> None:
    given = tmp_path / "star" / "calibration.safetensors"
    given.parent.mkdir()
    for path in (given, given.with_name("m.onnx"), tmp_path / "report.html"):
        path.write_bytes(b"1")
    save_checksums(
        tmp_path, ["star/calibration.safetensors", "star/m.onnx", "report.html"]
    )
    finish_folder(tmp_path, ["report.html"], given)
    assert given.exists() and not given.with_name("m.onnx").exists()
    assert [*read_checksums(tmp_path)] == ["report.html"]


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
        write_engines(
            Pair(onnx, onnx), manifest(onnx=onnx.name, onnx_sha256=sha256_of(onnx))
        )
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
