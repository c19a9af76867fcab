"""The batches of an epoch, and their augmentation."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from timm.utils import random_seed
from torch import Tensor

from exporter.core.base.errors import ImageError
from exporter.core.base.records import Preprocessing, normalise
from exporter.core.base.vocabulary import CropMode, Interpolation
from exporter.data.images import list_images
from exporter.data.pixels import to_input_size, to_pixels
from exporter.training.data import TrainBatches, _posterized, mixing, transform_of
from exporter.training.settings import AUGMENTATIONS, Augmentation, FinetuneSettings
from tests.vits import make_images

AUGMENTED = Preprocessing(
    (3, 24, 24),
    Interpolation.BICUBIC,
    (0.5, 0.4, 0.3),
    (0.2, 0.3, 0.4),
    1.0,
    CropMode.CENTER,
)
STILL = FinetuneSettings(
    augment="affine", rotate=0.0, shear=0.0, translate=0.0, scale=(1.0, 1.0)
)


@pytest.fixture
def image() -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    )


def evaluated(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(
        normalise(to_pixels(to_input_size(image, AUGMENTED)), AUGMENTED)
    )


def test_images_are_mirrored_where_that_is_asked_for_alone(image: Image.Image) -> None:
    assert AUGMENTATIONS["affine"].hflip == AUGMENTATIONS["none"].hflip == 0
    assert torch.equal(
        transform_of(AUGMENTATIONS["none"], AUGMENTED)(image), evaluated(image)
    )
    mirrored = transform_of(replace(STILL, hflip=1.0).augmentation, AUGMENTED)(image)
    assert torch.equal(mirrored, evaluated(image).flip(-1))


def test_mixing_is_timms() -> None:
    images, labels = torch.arange(48.0).reshape(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    assert mixing(AUGMENTATIONS["crop"], 3) is None
    mix = mixing(Augmentation(mixup=0.8), 3)
    assert mix is not None
    random_seed(1)
    mixed, shares = mix(images.clone(), labels)
    assert shares.shape == (4, 3)
    torch.testing.assert_close(shares.sum(1), torch.ones(4))
    assert shares[1, 1] == shares[2, 2] == 1 - shares[1, 2]
    own = float(shares[1, 1])
    torch.testing.assert_close(mixed, own * images + (1 - own) * images.flip(0))


def test_crop_is_timms_recipe(image: Image.Image) -> None:
    settings = FinetuneSettings(augment="crop", hflip=0.5, scale=(0.3, 0.9))
    theirs = create_transform(
        (3, 24, 24),
        is_training=True,
        scale=(0.3, 0.9),
        hflip=0.5,
        color_jitter=0.0,
        interpolation="bicubic",
        mean=AUGMENTED.mean,
        std=AUGMENTED.std,
    )
    random_seed(3)
    expected = theirs(image)
    random_seed(3)
    assert torch.equal(expected, transform_of(settings.augmentation, AUGMENTED)(image))


@pytest.mark.parametrize(
    "policy", ["rand-m10-n8-inc1", "original", "v0", "augmix-m10", "3a"]
)
def test_every_strength_of_a_policy_is_an_image(
    image: Image.Image, policy: str
) -> None:
    """Some keep no bit of a channel, which Pillow refuses from version 13 on."""
    augmentation = replace(AUGMENTATIONS["crop"], auto_augment=policy)
    transform = transform_of(augmentation, AUGMENTED)
    random_seed(0)
    for _ in range(60):
        assert transform(image).isfinite().all()


def test_no_bit_of_a_channel_is_black(image: Image.Image) -> None:
    pixels = np.asarray(image)
    for bits, expected in ((0, 0 * pixels), (2, pixels & 0b11000000), (8, pixels)):
        assert np.array_equal(np.asarray(_posterized(image, bits)), expected)


HALF = (0.5, 0.5, 0.5)
PREPROCESSING = Preprocessing(
    (3, 16, 16), Interpolation.BILINEAR, HALF, HALF, 1.0, CropMode.CENTER
)
SETTINGS = FinetuneSettings(batch_size=3, augment="affine")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_images(tmp_path / "images", classes=3)


def epoch_of(
    root: Path, epoch: int, settings: FinetuneSettings = SETTINGS
) -> tuple[Tensor, list[int]]:
    """All images and labels of one epoch."""
    made = TrainBatches(
        list_images(root, num_classes=3), settings, PREPROCESSING, num_classes=3
    )
    batches = list(made(epoch))
    return torch.cat([images for images, _ in batches]), torch.cat(
        [labels for _, labels in batches]
    ).tolist()


def test_an_epoch_holds_every_image_once_in_its_own_order(images: Path) -> None:
    (first, labels), (_, again), (_, later) = (
        epoch_of(images, epoch) for epoch in (1, 1, 2)
    )
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
    assert not any(
        torch.equal(made[place], made[place + 1]) for place in (0, 1, 3, 4, 6, 7)
    )


def test_worker_processes_load_the_same_variants_in_the_same_order(
    images: Path,
) -> None:
    made, labels = epoch_of(images, 1)
    anew, again = epoch_of(images, 1, replace(SETTINGS, workers=1))
    assert labels == again
    assert torch.equal(made, anew)


def test_random_numbers_of_the_model_do_not_depend_on_the_images(images: Path) -> None:
    def drawn() -> tuple[float, ...]:
        return random.random(), float(np.random.random()), float(torch.rand(1))

    random_seed(5)
    first = drawn()
    random_seed(5)
    epoch_of(images, 1, replace(SETTINGS, augment="crop", auto_augment="rand-m9"))
    assert first == drawn()


def test_images_left_over_wait_for_another_epoch(images: Path) -> None:
    settings = replace(SETTINGS, batch_size=4)
    assert len(epoch_of(images, 1, settings)[1]) == 8
    assert len(epoch_of(images, 1, replace(SETTINGS, batch_size=10))[1]) == 9
    seen = [epoch_of(images, epoch, settings)[1].count(0) for epoch in range(1, 12)]
    assert set(seen) == {2, 3}


def test_images_are_mixed_in_pairs(images: Path) -> None:
    settings = FinetuneSettings(batch_size=9, augment="none", mixup=0.8)
    made = TrainBatches(
        list_images(images, num_classes=3), settings, PREPROCESSING, num_classes=3
    )
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
    made = TrainBatches(
        list_images(images, num_classes=3), settings, PREPROCESSING, num_classes=3
    )
    labels = torch.cat([labels for _, labels in made(1)]).tolist()
    assert sorted(labels) == [0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert sorted(made.skipped) == ["class_0/2.png", "class_1/0.png"]
    assert all(why.startswith("cannot be decoded") for why in made.skipped.values())
    list(made(2))
    assert caplog.text.count("skipped class_0/2.png") == 1


def test_a_folder_without_any_image_that_can_be_read_is_one_line(images: Path) -> None:
    for path in images.rglob("*.png"):
        path.write_bytes(b"no image")
    made = TrainBatches(
        list_images(images, num_classes=3), SETTINGS, PREPROCESSING, num_classes=3
    )
    with pytest.raises(ImageError, match="9 images, none of which can be read"):
        list(made(1))
