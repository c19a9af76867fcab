"""Arrays of an .npz file are read; a damaged one is one line."""

import zipfile
from pathlib import Path
from random import Random

import numpy as np
import pytest

from exporter.core.base.npz import read_arrays

ARRAYS = {
    "images": np.arange(600, dtype=np.float32).reshape(2, 300),
    "names": np.array(["a", "b"]),
}


def test_arrays_are_read_as_they_were_saved(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", **ARRAYS)  # type: ignore[arg-type]
    read = read_arrays(tmp_path / "a.npz")
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize(
    "method",
    [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA],
)
def test_a_damaged_member_is_one_line(tmp_path: Path, method: int) -> None:
    np.savez(tmp_path / "plain.npz", **ARRAYS)  # type: ignore[arg-type]
    with (
        zipfile.ZipFile(tmp_path / "plain.npz") as plain,
        zipfile.ZipFile(tmp_path / "packed.npz", "w", method) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    content, refused = (tmp_path / "packed.npz").read_bytes(), 0
    for seed in range(300):
        random, damaged = Random(seed), bytearray(content)
        for _ in range(random.randint(1, 8)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        (tmp_path / "damaged.npz").write_bytes(damaged)
        try:
            read_arrays(tmp_path / "damaged.npz")
        except ValueError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1
    assert refused > 100


@pytest.mark.parametrize(
    "content", [b"", b"text", b"PK\x03\x04 cut", b"\x93NUMPY", b"\x80\x04."]
)
def test_what_is_no_archive_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"^no zip archive$"):
        read_arrays(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="No such file"):
        read_arrays(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="a folder"):
        read_arrays(tmp_path)
    np.save(tmp_path / "bare.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"^no zip archive$"):
        read_arrays(tmp_path / "bare.npy")
