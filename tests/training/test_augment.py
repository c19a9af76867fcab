"""The presets start from what a model is evaluated on, change it by the seed, and mirror nothing unasked."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from timm.utils import random_seed

from exporter.data.pixels import normalise, to_input_size, to_pixels
from exporter.records import Preprocessing
from exporter.training.augment import mixing, seeded, transform_of
from exporter.training.presets import AUGMENTATIONS, Augmentation
from exporter.training.settings import LoopSettings
from exporter.vocabulary import CropMode, Interpolation

PREPROCESSING = Preprocessing(
    (3, 24, 24), Interpolation.BICUBIC, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), 1.0, CropMode.CENTER
)
STILL = LoopSettings(rotate=0.0, shear=0.0, translate=0.0, scale=(1.0, 1.0))


@pytest.fixture
def image() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))


def evaluated(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(normalise(to_pixels(to_input_size(image, PREPROCESSING)), PREPROCESSING))


def test_affine_without_any_change_is_what_the_model_is_evaluated_on(image: Image.Image) -> None:
    transform = transform_of(STILL.augmentation, PREPROCESSING)
    assert torch.equal(transform(image), evaluated(image))


def test_images_are_mirrored_where_that_is_asked_for_alone(image: Image.Image) -> None:
    assert LoopSettings().augmentation.hflip == 0
    mirrored = transform_of(replace(STILL, hflip=1.0).augmentation, PREPROCESSING)(image)
    assert torch.equal(mirrored, evaluated(image).flip(-1))


@pytest.mark.parametrize("settings", [LoopSettings(), LoopSettings(augment="crop", auto_augment="rand-m9")])
def test_a_variant_follows_the_seed(settings: LoopSettings, image: Image.Image) -> None:
    transform = transform_of(settings.augmentation, PREPROCESSING)

    def drawn(seed: int) -> torch.Tensor:
        random_seed(seed)
        return transform(image)

    assert drawn(1).shape == (3, 24, 24)
    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_digits_are_never_mirrored_and_none_changes_nothing(image: Image.Image) -> None:
    assert AUGMENTATIONS["affine"].hflip == AUGMENTATIONS["none"].hflip == 0
    assert torch.equal(transform_of(AUGMENTATIONS["none"], PREPROCESSING)(image), evaluated(image))


def test_seeded_draws_leave_no_trace(image: Image.Image) -> None:
    """Every generator goes on as if nothing had been drawn, and the seed alone says what is drawn."""
    transform = transform_of(AUGMENTATIONS["deit"], PREPROCESSING)

    def drawn(seed: int) -> torch.Tensor:
        with seeded(seed):
            return transform(image)

    random_seed(4)
    expected = (random.random(), np.random.random(), float(torch.rand(1)))
    random_seed(4)
    first = drawn(1)
    assert (random.random(), np.random.random(), float(torch.rand(1))) == expected
    assert torch.equal(first, drawn(1))
    assert not torch.equal(first, drawn(2))


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
    settings = LoopSettings(augment="crop", hflip=0.5, scale=(0.3, 0.9))
    theirs = create_transform(
        (3, 24, 24),
        is_training=True,
        scale=(0.3, 0.9),
        hflip=0.5,
        color_jitter=0.0,
        interpolation="bicubic",
        mean=PREPROCESSING.mean,
        std=PREPROCESSING.std,
    )
    random_seed(3)
    expected = theirs(image)
    random_seed(3)
    assert torch.equal(expected, transform_of(settings.augmentation, PREPROCESSING)(image))
