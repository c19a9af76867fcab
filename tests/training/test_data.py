"""Both folders hold the same classes, and an epoch's batches follow from the seed and the epoch alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from timm.utils import random_seed
from torch import Tensor

from exporter.data.shards import list_shards
from exporter.errors import ImageError
from exporter.records import Preprocessing
from exporter.training.data import TrainBatches, open_folders
from exporter.training.settings import TrainSettings
from exporter.vocabulary import CropMode, Interpolation
from tests.shards import encoded, write_shard
from tests.vits import make_images

HALF = (0.5, 0.5, 0.5)
PREPROCESSING = Preprocessing((3, 16, 16), Interpolation.BILINEAR, HALF, HALF, 1.0, CropMode.CENTER)
SETTINGS = TrainSettings(batch_size=3, small_epochs=1)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_images(tmp_path / "images", classes=3)


def epoch_of(root: Path, epoch: int, settings: TrainSettings = SETTINGS) -> tuple[Tensor, list[int]]:
    """All images and labels of one epoch."""
    made = TrainBatches(
        open_folders(root, root).train,
        settings,
        PREPROCESSING,
        num_classes=3,
        small_epochs=settings.small_epochs,
    )
    batches = list(made(epoch))
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


def test_repeated_images_follow_each_other_in_other_variants(images: Path) -> None:
    """Nine places: three images, three times each; the first variant of each is the one without repetition."""
    made, labels = epoch_of(images, 1, replace(SETTINGS, repeats=3))
    once, labels_once = epoch_of(images, 1)
    assert labels == [label for label in labels_once[:3] for _ in range(3)]
    assert torch.equal(made[::3], once[:3])
    assert not any(torch.equal(made[place], made[place + 1]) for place in (0, 1, 3, 4, 6, 7))


def test_small_epochs_see_half_the_side(images: Path) -> None:
    assert epoch_of(images, 0)[0].shape == (9, 3, 8, 8)
    assert epoch_of(images, 1)[0].shape == (9, 3, 16, 16)


def test_worker_processes_load_the_same_variants_in_the_same_order(images: Path) -> None:
    made, labels = epoch_of(images, 1)
    anew, again = epoch_of(images, 1, replace(SETTINGS, workers=1))
    assert labels == again
    assert torch.equal(made, anew)


def test_random_numbers_of_the_model_do_not_depend_on_the_images(images: Path) -> None:
    torch.manual_seed(5)
    first = torch.rand(1)
    torch.manual_seed(5)
    epoch_of(images, 1)
    assert torch.equal(first, torch.rand(1))


def test_images_left_over_wait_for_another_epoch(images: Path) -> None:
    settings = replace(SETTINGS, batch_size=4)
    assert len(epoch_of(images, 1, settings)[1]) == 8
    assert len(epoch_of(images, 1, replace(SETTINGS, batch_size=10))[1]) == 9
    seen = [epoch_of(images, epoch, settings)[1].count(0) for epoch in range(1, 12)]
    assert set(seen) == {2, 3}


def test_images_are_mixed_in_pairs(images: Path) -> None:
    settings = TrainSettings(batch_size=9, augment="none", mixup=0.8)
    made = TrainBatches(open_folders(images, images).train, settings, PREPROCESSING, num_classes=3)
    random_seed(0)
    ((mixed, shares),) = made(1)
    assert (mixed.shape, shares.shape) == ((8, 3, 16, 16), (8, 3))
    torch.testing.assert_close(shares.sum(1), torch.ones(8))
    assert ((shares > 0) & (shares < 1)).any()


@pytest.mark.parametrize("workers", [0, 1])
def test_what_cannot_be_read_is_replaced_counted_and_named(
    images: Path, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("class_0/2.png", "class_1/0.png"):
        (images / name).write_bytes(b"no image")
    settings = replace(SETTINGS, workers=workers)
    made = TrainBatches(open_folders(images, images).train, settings, PREPROCESSING, num_classes=3)
    labels = torch.cat([labels for _, labels in made(1)]).tolist()
    assert sorted(labels) == [0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert sorted(made.skipped) == ["class_0/2.png", "class_1/0.png"]
    assert all(why.startswith("cannot be decoded") for why in made.skipped.values())
    list(made(2))
    assert caplog.text.count("skipped class_0/2.png") == 1


def test_a_corrupt_member_of_a_shard_is_skipped(tmp_path: Path) -> None:
    members = {f"{index}.png": encoded(index) for index in range(4)} | {"4.png": b"torn"}
    labels = {f"{index}.cls": str(index % 2) for index in range(5)}
    shard = write_shard(tmp_path / "a.tar", dict(sorted({**members, **labels}.items())))
    made = TrainBatches(list_shards([shard]), replace(SETTINGS, batch_size=5), PREPROCESSING, num_classes=2)
    ((shown, classes),) = made(1)
    assert (len(shown), sorted(classes.tolist())) == (5, [0, 0, 0, 1, 1])
    assert list(made.skipped) == ["a.tar/4.png"]


def test_a_folder_without_any_image_that_can_be_read_is_one_line(images: Path) -> None:
    for path in images.rglob("*.png"):
        path.write_bytes(b"no image")
    made = TrainBatches(open_folders(images, images).train, SETTINGS, PREPROCESSING, num_classes=3)
    with pytest.raises(ImageError, match="9 images, none of which can be read"):
        list(made(1))


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
