"""Images at hand stand where a folder's do."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from exporter.data.arrays import ArrayImage, images_in
from exporter.data.digests import dataset_sha256
from exporter.data.images import ImageFolder
from exporter.data.pixels import LoadedImage, load_image
from exporter.errors import ImageError
from exporter.records import Preprocessing
from tests.vits import make_vit

SIZE = (3, 4, 6)


def pixels(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, *SIZE), np.uint8)


def arrays(folder: ImageFolder) -> np.ndarray[Any, Any]:
    return np.stack([file.pixels for file in folder.files if isinstance(file, ArrayImage)])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_array_and_a_tensor(dtype: Any) -> None:
    images = pixels(5).astype(dtype)
    for given in (images, torch.from_numpy(images)):
        found = images_in(given, SIZE)
        assert np.array_equal(arrays(found), images)
        assert arrays(found).dtype == dtype
    assert not found.labelled


def test_all_of_an_array_are_drawn_from() -> None:
    assert len(images_in(pixels(5), SIZE, most=2).files) == 5


@pytest.mark.parametrize(
    "wrap",
    [
        lambda images: images,
        lambda images: (images, torch.zeros(len(images))),
        lambda images: [images],
        lambda images: {"pixel_values": images, "labels": None},
        lambda images: {"label": None, "image": images},
    ],
)
def test_the_batches_of_a_loader(wrap: Any) -> None:
    batches = [torch.from_numpy(pixels(2, seed)) for seed in range(3)]
    found = images_in(map(wrap, batches), SIZE)
    assert np.array_equal(arrays(found), torch.cat(batches).numpy())


def test_a_loader_of_torch() -> None:
    images = torch.randn(5, *SIZE, dtype=torch.float64, requires_grad=True)
    loader = DataLoader(TensorDataset(images.detach(), torch.arange(5)), batch_size=2)
    assert np.array_equal(arrays(images_in(loader, SIZE)), images.detach().float().numpy())
    assert np.array_equal(arrays(images_in(images, SIZE)), images.detach().float().numpy())


def test_no_more_of_a_loader_is_read_than_is_asked_for() -> None:
    read = []

    def endless() -> Iterator[torch.Tensor]:
        while True:
            read.append(1)
            yield torch.zeros(2, *SIZE)

    assert len(images_in(endless(), SIZE, most=3).files) == 3
    assert len(read) == 2


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (pixels(0), "images | got none | need at least one"),
        ([], "images | got none | need at least one"),
        (pixels(2)[0], "images | got shape [3, 4, 6] | need [n, 3, 4, 6], the model's input"),
        (pixels(2)[:, :, :3], "got shape [2, 3, 3, 6]"),
        (pixels(2).astype(np.int64), "images | got int64 | need uint8 pixels, or floats as normalised"),
        (np.full((1, *SIZE), np.nan), "images | got values that are not finite"),
        ([3], "images | got a batch with int in the place of images"),
        ([{"x": pixels(1)}], "images | got a batch with NoneType in the place of images"),
    ],
)
def test_what_is_no_image_is_refused(images: Any, message: str) -> None:
    with pytest.raises(ImageError) as caught:
        images_in(images, SIZE)
    assert message in str(caught.value)


def test_they_load_as_they_are() -> None:
    preprocessing: Preprocessing = make_vit().spec.preprocessing
    (file,) = images_in(pixels(1), SIZE).files
    loaded = load_image(file, preprocessing, preprocessing)
    assert isinstance(loaded, LoadedImage)
    assert len(loaded.views) == 2
    assert np.array_equal(loaded.pixels, pixels(1)[0])


def test_their_digest_is_that_of_their_values() -> None:
    first, same, other = (dataset_sha256(images_in(pixels(3, seed), SIZE).files) for seed in (0, 0, 1))
    assert first == same != other
