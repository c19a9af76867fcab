"""The export folder as whoever serves from it reads it."""

import json
from pathlib import Path

import numpy as np
import pytest

from exporter.errors import ArtefactError
from exporter.targets import OPENVINO_BF16
from exporter.workflows.export_folder import (
    read_folder,
    read_reference,
    save_checksums,
    save_raw_images,
    verify_checksums,
)


def test_the_models_and_the_images_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(
        json.dumps({"files": {"dense": "d.onnx", "pruned": "p.onnx"}, "target": "openvino-bf16"})
    )
    images = np.zeros((2, 3, 4, 4), np.float32)
    np.savez(tmp_path / "reference.npz", images=images)
    found = read_folder(tmp_path)
    assert (found.dense, found.pruned) == (tmp_path / "d.onnx", tmp_path / "p.onnx")
    np.testing.assert_array_equal(read_reference(found.reference)["images"], images)
    assert found.target == OPENVINO_BF16


@pytest.mark.parametrize("report", [None, "{", "[]", "{}", '{"files": {"dense": "d.onnx"}}', '{"files": 3}'])
def test_a_folder_that_is_none_of_ours(tmp_path: Path, report: str | None) -> None:
    if report is not None:
        (tmp_path / "report.json").write_text(report)
    with pytest.raises(ArtefactError, match="need"):
        read_folder(tmp_path)
    with pytest.raises(ArtefactError, match="no folder"):
        read_folder(tmp_path / "none")


def test_images_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "reference.npz"
    with pytest.raises(ArtefactError, match=r"reference\.npz"):
        read_reference(path)
    for arrays in ({"logits": np.zeros(3)}, {"images": np.zeros((0, 3, 4, 4))}, {"images": np.zeros(3)}):
        np.savez(path, **arrays)
        with pytest.raises(ArtefactError):
            read_reference(path)
    for content in (b"", b"text", b"PK\x03\x04 cut"):
        path.write_bytes(content)
        with pytest.raises(ArtefactError):
            read_reference(path)


def test_raw_images_are_the_arrays_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    names = save_raw_images(images, (1, 4), tmp_path)
    assert names == ["inputs/images.batch1.bin", "inputs/images.batch4.bin"]
    one, four = (np.fromfile(tmp_path / name, np.float32).reshape(-1, 3, 4, 4) for name in names)
    np.testing.assert_array_equal(one, images[:1])
    np.testing.assert_array_equal(four, np.concatenate([images, images]))


def test_checksums(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="SHA256SUMS"):
        verify_checksums(tmp_path)
    (tmp_path / "a").write_text("a")
    save_checksums(tmp_path, ["a"])
    assert set(verify_checksums(tmp_path)) == {"a"}
    (tmp_path / "a").write_text("b")
    with pytest.raises(ArtefactError, match=r"a \| got sha256 .* of SHA256SUMS \| copy it again"):
        verify_checksums(tmp_path)
    (tmp_path / "a").unlink()
    with pytest.raises(ArtefactError, match="no such file"):
        verify_checksums(tmp_path)
    (tmp_path / "SHA256SUMS").write_text("nonsense")
    with pytest.raises(ArtefactError, match="SHA256SUMS"):
        verify_checksums(tmp_path)
    (tmp_path / "SHA256SUMS").write_text("")
    with pytest.raises(ArtefactError, match="an empty list"):
        verify_checksums(tmp_path)
