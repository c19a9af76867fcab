"""Batches are the images in order, in the model's dtype, with their classes; NumPy and Pillow make them."""

from pathlib import Path

import numpy as np
import pytest

from exporter.data.batches import batches, first_images
from exporter.data.images import ImageFile, list_images
from exporter.data.pixels import normalise
from exporter.errors import ImageError
from exporter.records import Preprocessing
from exporter.vocabulary import CropMode, Interpolation
from tests.vits import make_images

HALF = (0.5, 0.5, 0.5)
SMALL = Preprocessing((3, 24, 16), Interpolation.BILINEAR, HALF, HALF, 1.0, CropMode.SQUASH)


@pytest.fixture
def files(tmp_path: Path) -> tuple[ImageFile, ...]:
    return list_images(make_images(tmp_path / "images", classes=2, each=4), num_classes=2).files


def test_batches_hold_every_image_once_and_in_order(files: tuple[ImageFile, ...]) -> None:
    groups = list(batches(files, SMALL, "uint8", 3))
    assert [images.shape for images, _ in groups] == [(3, 3, 24, 16), (3, 3, 24, 16), (2, 3, 24, 16)]
    labels = np.concatenate([labels for _, labels in groups])
    assert labels.dtype == np.int64
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    whole = np.concatenate([images for images, _ in groups])
    ((alone, _),) = batches(files, SMALL, "uint8", 99)
    np.testing.assert_array_equal(whole, alone)
    assert whole.dtype == np.uint8


def test_float32_is_the_pixels_normalised(files: tuple[ImageFile, ...]) -> None:
    ((pixels, _),) = batches(files, SMALL, "uint8", 8)
    ((images, _),) = batches(files, SMALL, "float32", 8)
    assert images.dtype == np.float32
    np.testing.assert_array_equal(images, normalise(pixels, SMALL))


def test_an_unknown_class_is_minus_one_and_a_broken_image_is_left_out(files: tuple[ImageFile, ...]) -> None:
    files[1].path.write_text("no image")
    ((images, labels),) = batches([ImageFile(file.path, None) for file in files[:3]], SMALL, "uint8", 8)
    assert len(images) == 2
    assert labels.tolist() == [-1, -1]


def test_first_images_are_the_first_that_can_be_read(files: tuple[ImageFile, ...]) -> None:
    files[0].path.write_text("no image")
    ((expected, _),) = batches(files[1:4], SMALL, "uint8", 3)
    np.testing.assert_array_equal(first_images(files, SMALL, "uint8", 3), expected)
    with pytest.raises(ImageError, match="none that can be read"):
        first_images(files[:1], SMALL, "uint8", 3)
