"""Random augmentation of training images, by the name of a preset."""

from collections.abc import Callable
from functools import partial

import torch
from PIL import Image
from timm.data import create_transform
from torch import Tensor
from torchvision.transforms import Compose, InterpolationMode, RandomAffine, RandomHorizontalFlip

from exporter.data.geometry import to_input_size
from exporter.data.pixels import normalise, to_pixels
from exporter.records import Preprocessing
from exporter.training.settings import TrainSettings

__all__ = ["augmentation"]

Transform = Callable[[Image.Image], Tensor]


def augmentation(settings: TrainSettings, preprocessing: Preprocessing) -> Transform:
    """Return a transform from an RGB image to a random, preprocessed variant: float32 [3, height, width].

    "affine" rotates, shears, shifts and scales the evaluation crop; "crop" is timm's recipe.
    """
    return (_crop if settings.augment == "crop" else _affine)(settings, preprocessing)


def _affine(settings: TrainSettings, preprocessing: Preprocessing) -> Transform:
    affine = RandomAffine(
        settings.rotate,
        (settings.translate, settings.translate),
        settings.scale,
        settings.shear,
        interpolation=InterpolationMode.BILINEAR,
    )
    transform: Transform = Compose(
        [
            partial(to_input_size, preprocessing=preprocessing),
            affine,
            RandomHorizontalFlip(settings.hflip),
            partial(_to_input, preprocessing=preprocessing),
        ]
    )
    return transform


def _crop(settings: TrainSettings, preprocessing: Preprocessing) -> Transform:
    transform: Transform = create_transform(
        preprocessing.input_size,
        is_training=True,
        interpolation=preprocessing.interpolation.value,
        mean=preprocessing.mean,
        std=preprocessing.std,
        scale=settings.scale,
        hflip=settings.hflip,
        auto_augment=settings.auto_augment,
    )
    return transform


def _to_input(image: Image.Image, preprocessing: Preprocessing) -> Tensor:
    return torch.from_numpy(normalise(to_pixels(image), preprocessing))
