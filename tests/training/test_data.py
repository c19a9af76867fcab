"""Both folders hold the same classes, and an epoch's batches follow from the seed and the epoch alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from exporter.errors import ImageError
from exporter.records import Preprocessing
from exporter.training.data import open_folders, train_batches
from exporter.training.settings import TrainSettings
from exporter.vocabulary import CropMode, Interpolation
from tests.vits import make_images

HALF = (0.5, 0.5, 0.5)
PREPROCESSING = Preprocessing((3, 16, 16), Interpolation.BILINEAR, HALF, HALF, 1.0, CropMode.CENTER)
SETTINGS = TrainSettings(batch_size=4, small_epochs=1)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_images(tmp_path / "images", classes=3)


def epoch_of(root: Path, epoch: int, settings: TrainSettings = SETTINGS) -> tuple[Tensor, list[int]]:
    """All images and labels of one epoch; the augmentation draws from PyTorch's own generator."""
    torch.manual_seed(0)
    batches = list(train_batches(open_folders(root, root).train, settings, PREPROCESSING)(epoch))
    return torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches]).tolist()


def test_folders_are_listed_with_their_classes(images: Path) -> None:
    folders = open_folders(images, images)
    assert folders.class_names == ("class_0", "class_1", "class_2")
    assert [file.label for file in folders.train.files] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert folders.train == folders.held_out


def test_an_epoch_holds_every_image_once_in_its_own_order(images: Path) -> None:
    (first, labels), (_, again), (_, later) = (epoch_of(images, epoch) for epoch in (1, 1, 2))
    assert first.shape == (9, 3, 16, 16)
    assert sorted(labels) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert labels == again
    assert labels != later
    assert torch.equal(first, epoch_of(images, 1)[0])
    assert labels != epoch_of(images, 1, replace(SETTINGS, seed=1))[1]


def test_small_epochs_see_half_the_side(images: Path) -> None:
    assert epoch_of(images, 0)[0].shape == (9, 3, 8, 8)
    assert epoch_of(images, 1)[0].shape == (9, 3, 16, 16)


def test_worker_processes_load_the_same_order(images: Path) -> None:
    assert epoch_of(images, 1)[1] == epoch_of(images, 1, replace(SETTINGS, workers=1))[1]


def test_an_image_outside_the_class_folders_is_refused(images: Path) -> None:
    Image.new("RGB", (8, 8)).save(images / "stray.png")
    with pytest.raises(ImageError, match=r"stray\.png \| got an image outside the class folders"):
        open_folders(images, images)


def test_a_class_without_an_image_is_refused(images: Path) -> None:
    (images / "class_9").mkdir()
    with pytest.raises(ImageError, match=r"class_9 \| got no image"):
        open_folders(images, images)


def test_other_classes_are_refused(images: Path, tmp_path: Path) -> None:
    fewer = make_images(tmp_path / "fewer", classes=2)
    with pytest.raises(ImageError, match="first: 'class_2'"):
        open_folders(images, fewer)
    alone = make_images(tmp_path / "alone", classes=1)
    with pytest.raises(ImageError, match="at least 2 folders"):
        open_folders(alone, alone)
    with pytest.raises(ImageError, match="one folder of images per class"):
        open_folders(tmp_path / "none", images)
