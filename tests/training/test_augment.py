"""The presets start from what a model is evaluated on, change it by the seed, and mirror nothing unasked."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from timm.utils import random_seed

from exporter.data.geometry import to_input_size
from exporter.data.pixels import normalise, to_pixels
from exporter.records import Preprocessing
from exporter.training.augment import augmentation
from exporter.training.settings import TrainSettings
from exporter.vocabulary import CropMode, Interpolation

PREPROCESSING = Preprocessing(
    (3, 24, 24), Interpolation.BICUBIC, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), 1.0, CropMode.CENTER
)
STILL = TrainSettings(rotate=0.0, shear=0.0, translate=0.0, scale=(1.0, 1.0))


@pytest.fixture
def image() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))


def evaluated(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(normalise(to_pixels(to_input_size(image, PREPROCESSING)), PREPROCESSING))


def test_affine_without_any_change_is_what_the_model_is_evaluated_on(image: Image.Image) -> None:
    transform = augmentation(STILL, PREPROCESSING)
    assert torch.equal(transform(image), evaluated(image))


def test_images_are_mirrored_where_that_is_asked_for_alone(image: Image.Image) -> None:
    assert TrainSettings().hflip == 0
    mirrored = augmentation(replace(STILL, hflip=1.0), PREPROCESSING)(image)
    assert torch.equal(mirrored, evaluated(image).flip(-1))


@pytest.mark.parametrize("settings", [TrainSettings(), TrainSettings(augment="crop", auto_augment="rand-m9")])
def test_a_variant_follows_the_seed(settings: TrainSettings, image: Image.Image) -> None:
    transform = augmentation(settings, PREPROCESSING)

    def drawn(seed: int) -> torch.Tensor:
        random_seed(seed)
        return transform(image)

    assert drawn(1).shape == (3, 24, 24)
    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_crop_is_timms_recipe(image: Image.Image) -> None:
    settings = TrainSettings(augment="crop", hflip=0.5, scale=(0.3, 0.9))
    theirs = create_transform(
        (3, 24, 24),
        is_training=True,
        scale=(0.3, 0.9),
        hflip=0.5,
        interpolation="bicubic",
        mean=PREPROCESSING.mean,
        std=PREPROCESSING.std,
    )
    random_seed(3)
    expected = theirs(image)
    random_seed(3)
    assert torch.equal(expected, augmentation(settings, PREPROCESSING)(image))
