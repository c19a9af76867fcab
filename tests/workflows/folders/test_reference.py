"""Real images and what PyTorch's models give for them, as a deployment reads them."""

from pathlib import Path

import numpy as np
import pytest

from exporter.errors import ArtefactError
from exporter.workflows.folders.reference import read_reference


def test_a_reference_is_read_as_it_was_saved(tmp_path: Path) -> None:
    arrays = {"images": np.ones((2, 3, 4, 4), np.float32), "logits": np.zeros((2, 7), np.float32)}
    np.savez(tmp_path / "reference.npz", **arrays)  # type: ignore[arg-type]
    read = read_reference(tmp_path / "reference.npz")
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)


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


IMAGES = np.zeros((2, 3, 4, 4), np.float32)
KEEP, COUNT = np.array([[0, 2], [1, 3]]), np.array([2, 1])


@pytest.mark.parametrize(
    ("name", "array", "got"),
    [
        ("keep_03", KEEP.astype(np.float32), r"float32 \[2, 2\]"),
        ("keep_03", KEEP.astype(np.uint64), r"uint64 \[2, 2\]"),
        ("keep_03", KEEP[:1], r"int64 \[1, 2\]"),
        ("keep_03", KEEP[:, :0], r"int64 \[2, 0\]"),
        ("keep_03", KEEP[0], r"int64 \[2\]"),
        ("count_03", COUNT[:, None], r"int64 \[2, 1\]"),
        ("count_03", COUNT.astype(np.float64), r"float64 \[2\]"),
    ],
)
def test_kept_patches_are_whole_numbers_for_each_image(
    tmp_path: Path, name: str, array: np.ndarray, got: str
) -> None:
    path, arrays = tmp_path / "reference.npz", {"images": IMAGES, "keep_03": KEEP, "count_03": COUNT}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    assert read_reference(path).keys() == arrays.keys()
    np.savez(path, **{**arrays, name: array})  # type: ignore[arg-type]
    with pytest.raises(ArtefactError, match=rf"got {name} {got} \| need int64 \[2"):
        read_reference(path)
