"""Batches are the images in order, in the model's dtype, with their classes; NumPy and Pillow make them."""

import threading
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.core.base.errors import ImageError
from exporter.core.base.records import Preprocessing, normalise
from exporter.core.base.vocabulary import CropMode, Interpolation
from exporter.data.batches import View, batches, batches_of, first_images, made_ahead
from exporter.data.images import ImageFile, list_images
from tests.vits import make_images

HALF = (0.5, 0.5, 0.5)
SMALL = Preprocessing(
    (3, 24, 16), Interpolation.BILINEAR, HALF, HALF, 1.0, CropMode.SQUASH
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[ImageFile, ...]:
    return list_images(
        make_images(tmp_path / "images", classes=2, each=4), num_classes=2
    ).files


def test_batches_hold_every_image_once_and_in_order(
    files: tuple[ImageFile, ...],
) -> None:
    groups = list(batches(files, SMALL, "uint8", 3))
    assert [images.shape for images, _ in groups] == [
        (3, 3, 24, 16),
        (3, 3, 24, 16),
        (2, 3, 24, 16),
    ]
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


def test_an_unknown_class_is_minus_one_and_a_broken_image_is_left_out(
    files: tuple[ImageFile, ...],
) -> None:
    files[1].path.write_text("no image")
    ((images, labels),) = batches(
        [ImageFile(file.path, None) for file in files[:3]], SMALL, "uint8", 8
    )
    assert len(images) == 2
    assert labels.tolist() == [-1, -1]


def test_first_images_are_the_first_that_can_be_read(
    files: tuple[ImageFile, ...],
) -> None:
    files[0].path.write_text("no image")
    ((expected, _),) = batches(files[1:4], SMALL, "uint8", 3)
    np.testing.assert_array_equal(first_images(files, SMALL, "uint8", 3), expected)
    with pytest.raises(ImageError, match="none that can be read"):
        first_images(files[:1], SMALL, "uint8", 3)


def test_each_view_of_a_batch_is_what_one_model_takes(
    files: tuple[ImageFile, ...],
) -> None:
    square = replace(SMALL, input_size=(3, 8, 8))
    views = (View(SMALL, "float32"), View(SMALL, "uint8"), View(square, "uint8"))
    groups = list(batches_of(files, views, 3, workers=2))
    assert [len(group.files) for group in groups] == [3, 3, 2]
    for place, view in enumerate(views):
        whole = np.concatenate([group.views[place] for group in groups])
        ((alone, labels),) = batches(files, view.preprocessing, view.input_kind, 99)
        np.testing.assert_array_equal(whole, alone)
        np.testing.assert_array_equal(
            np.concatenate([group.labels for group in groups]), labels
        )


def test_a_batch_is_of_so_many_files_and_names_what_it_skips(
    files: tuple[ImageFile, ...],
) -> None:
    for broken in (1, 6, 7):
        files[broken].path.write_text("no image")
    groups = list(batches_of(files, [View(SMALL, "uint8")], 3))
    assert [len(group.files) for group in groups] == [2, 3, 0]
    skipped = [[*group.skipped] for group in groups]
    assert skipped == [[files[1].path], [], [files[6].path, files[7].path]]
    assert groups[-1].views == ()
    assert groups[-1].labels.shape == (0,)


def test_a_batch_is_made_while_the_one_before_is_used() -> None:
    made, used = [], threading.Event()

    def items() -> Generator[int]:
        for item in range(3):
            made.append(item)
            if item == 1:
                used.set()
            yield item

    running = made_ahead(items())
    assert next(running) == 0
    assert used.wait(10)
    assert [*running] == [1, 2]
    assert made == [0, 1, 2]


def test_what_is_left_early_is_closed() -> None:
    closed = threading.Event()

    def items() -> Generator[int]:
        try:
            yield from range(10)
        finally:
            closed.set()

    running = made_ahead(items())
    next(running)
    running.close()
    assert closed.wait(10)


def test_an_error_reaches_the_caller() -> None:
    def items() -> Generator[int]:
        yield 0
        raise ImageError("shard", "a torn file", "a whole one")

    running = made_ahead(items())
    assert next(running) == 0
    with pytest.raises(ImageError, match="torn"):
        next(running)


def test_only_a_few_images_are_in_memory(files: tuple[ImageFile, ...]) -> None:
    taken = []

    def many() -> Iterator[ImageFile]:
        for index in range(200):
            taken.append(index)
            yield files[0]

    running = batches_of(many(), [View(SMALL, "uint8")], 4)
    next(running)
    running.close()
    # One batch in use, one that waits, and one decoded ahead of it.
    assert len(taken) <= 4 + 4 + 4 + 2
