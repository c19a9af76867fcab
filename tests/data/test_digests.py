"""Digests are over the bytes, of a folder also over the paths."""

import hashlib
from pathlib import Path

import pytest

from exporter.data.digests import dataset_sha256, folder_sha256
from exporter.data.images import ImageFile, list_images
from exporter.errors import ImageError
from tests.data.touched import touch


def test_the_hash_is_over_the_bytes_in_order(tmp_path: Path) -> None:
    files = list_images(touch(tmp_path, "a.png", "b.png")).files
    assert hashlib.sha256(b"a.pngb.png").hexdigest() == dataset_sha256(files)
    gone = ImageFile(tmp_path / "gone.png", None)
    assert dataset_sha256(files) == dataset_sha256([*files, gone])
    assert dataset_sha256(files) != dataset_sha256(files[::-1])


def test_the_hash_of_a_folder_is_over_paths_and_bytes(tmp_path: Path) -> None:
    images = list_images(touch(tmp_path / "one", "cat/1.png", "dog/2.png"))
    expected = hashlib.sha256(b"cat/1.png 9\ncat/1.pngdog/2.png 9\ndog/2.png").hexdigest()
    assert expected == folder_sha256(images)
    assert expected == folder_sha256(list_images(touch(tmp_path / "two", "cat/1.png", "dog/2.png")))
    images.files[0].path.rename(images.files[0].path.with_name("3.png"))
    with pytest.raises(ImageError, match=r"1\.png"):
        folder_sha256(images)
    assert expected != folder_sha256(list_images(tmp_path / "one"))
