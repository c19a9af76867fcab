"""The export folder as whoever serves from it reads it."""

import json
from pathlib import Path

import numpy as np
import pytest

from exporter.delivery import read_folder, read_reference
from exporter.errors import ArtefactError


def test_the_models_and_the_images_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"files": {"dense": "d.onnx", "pruned": "p.onnx"}}))
    images = np.zeros((2, 3, 4, 4), np.float32)
    np.savez(tmp_path / "reference.npz", images=images)
    found = read_folder(tmp_path)
    assert (found.dense, found.pruned) == (tmp_path / "d.onnx", tmp_path / "p.onnx")
    np.testing.assert_array_equal(read_reference(found.reference)["images"], images)


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
