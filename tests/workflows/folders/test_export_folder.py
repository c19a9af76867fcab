"""The export folder, read as a deployment reads it."""

from pathlib import Path

import numpy as np
import pytest

from exporter.errors import ArtefactError
from exporter.targets import OPENVINO_BF16
from exporter.tensor_names import variant_path
from exporter.workflows.folders.export_folder import read_folder, save_checksums, save_raw_images
from exporter.workflows.folders.reference import read_reference
from tests.folders import artefacts, write_folder


def test_the_models_and_the_images_of_a_folder(tmp_path: Path) -> None:
    files = write_folder(tmp_path, OPENVINO_BF16)
    found = read_folder(tmp_path)
    assert (found.models.dense.path, found.models.pruned.path) == (files.dense, files.pruned)
    assert found.reference == tmp_path / "reference.npz"
    made = artefacts(OPENVINO_BF16)
    assert (found.models.dense.artefact, found.models.pruned.artefact) == (made.dense, made.pruned)
    assert found.target == OPENVINO_BF16


def test_a_report_of_another_target_is_refused(tmp_path: Path) -> None:
    """A tolerance follows from the target: it is the file's own metadata that names it."""
    write_folder(tmp_path, OPENVINO_BF16)
    assert read_folder(tmp_path).target == OPENVINO_BF16
    write_folder(tmp_path, OPENVINO_BF16, told={"target": "onnxruntime-int8"})
    with pytest.raises(ArtefactError, match=r"report\.json"):
        read_folder(tmp_path)


def test_every_file_that_is_read_has_a_checksum(tmp_path: Path) -> None:
    models = write_folder(tmp_path)
    files = (
        "report.json",
        "reference.npz",
        "schedule.json",
        "model.json",
        models.dense.name,
        models.pruned.name,
    )
    for name in files:
        save_checksums(tmp_path, [each for each in files if each != name])
        with pytest.raises(ArtefactError, match=f"no line for {name}"):
            read_folder(tmp_path)


@pytest.mark.parametrize("role", ["tracing", "sliced"])
def test_a_variant_without_a_checksum_is_refused(tmp_path: Path, role: str) -> None:
    """It could be anything: `check` runs it, and `build` makes an engine of it."""
    variant = variant_path(write_folder(tmp_path).pruned, role)
    assert read_folder(tmp_path).place == tmp_path
    variant.write_bytes(b"anything")
    names = [each.name for each in tmp_path.iterdir() if each.name != "SHA256SUMS"]
    save_checksums(tmp_path, [name for name in names if name != variant.name])
    with pytest.raises(ArtefactError, match=rf"{role}\.onnx \| got no line in SHA256SUMS"):
        read_folder(tmp_path)


def test_raw_images_without_a_checksum_are_those_of_the_reference(tmp_path: Path) -> None:
    """`bench` adds them for batch sizes that `compile` did not know."""
    write_folder(tmp_path)
    images = read_reference(tmp_path / "reference.npz")["images"]
    (name,) = save_raw_images(images, (6,), tmp_path)
    read_folder(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for content in (whole[:-1], whole + b"x", bytes(len(whole)), b""):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ArtefactError, match=r"batch6\.bin \| got other images"):
            read_folder(tmp_path)
    (tmp_path / name).rename(tmp_path / "inputs" / f"images.batch{'9' * 30}.bin")
    with pytest.raises(ArtefactError, match="got other images"):
        read_folder(tmp_path)


@pytest.mark.parametrize("report", [None, "{", "[]", "{}", '{"files": {"dense": "d.onnx"}}', '{"files": 3}'])
def test_a_folder_that_is_none_of_ours(tmp_path: Path, report: str | None) -> None:
    if report is not None:
        (tmp_path / "report.json").write_text(report)
        save_checksums(tmp_path, ["report.json"])
    with pytest.raises(ArtefactError, match="need"):
        read_folder(tmp_path)
    with pytest.raises(ArtefactError, match="no folder"):
        read_folder(tmp_path / "none")


def test_raw_images_are_the_arrays_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    names = save_raw_images(images, (1, 4), tmp_path)
    assert names == ["inputs/images.batch1.bin", "inputs/images.batch4.bin"]
    one, four = (np.fromfile(tmp_path / name, np.float32).reshape(-1, 3, 4, 4) for name in names)
    np.testing.assert_array_equal(one, images[:1])
    np.testing.assert_array_equal(four, np.concatenate([images, images]))
