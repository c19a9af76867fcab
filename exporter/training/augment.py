"""Random augmentation of training images: transforms of one image, and mixing within a batch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import getstate, setstate

import numpy as np
import torch
from PIL import Image
from timm.data import Mixup, create_transform
from timm.utils import random_seed
from torch import Tensor
from torchvision.transforms import Compose, InterpolationMode, RandomAffine, RandomHorizontalFlip

from exporter.data.pixels import normalise, to_input_size, to_pixels
from exporter.errors import RecipeError
from exporter.records import Preprocessing
from exporter.training.presets import Augmentation

__all__ = ["Transform", "mixing", "seeded", "transform_of"]

Transform = Callable[[Image.Image], Tensor]


def transform_of(augmentation: Augmentation, preprocessing: Preprocessing) -> Transform:
    """Return a transform from an RGB image to a random, preprocessed variant: float32 [3, height, width].

    Raises:
        RecipeError: timm knows no such policy.
    """
    if augmentation.affine:
        return _affine(augmentation, preprocessing)
    try:
        return _crop(augmentation, preprocessing)
    except (AssertionError, ValueError, KeyError) as error:
        policy = augmentation.auto_augment
        if policy is None:
            raise
        expected = "a policy of timm, e.g. rand-m9-mstd0.5-inc1"
        raise RecipeError("auto_augment", f"{policy!r}: {error}", expected) from None


def mixing(
    augmentation: Augmentation, num_classes: int
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None:
    """Return timm's mixup and cutmix, each for half of the batches if both are on; None if both are off.

    It takes images [batch, 3, height, width] and classes int64 [batch], an even number, changes the images in
    place, and returns them with class probabilities [batch, classes]. It draws from NumPy's generator.
    """
    if not augmentation.mixup and not augmentation.cutmix:
        return None
    mix: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = Mixup(
        augmentation.mixup, augmentation.cutmix, label_smoothing=0.0, num_classes=num_classes
    )
    return mix


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of Python, NumPy and PyTorch's CPU, and leave them as they were."""
    python, numpy = getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random_seed(seed % 2**32)
        try:
            yield
        finally:
            setstate(python)
            np.random.set_state(numpy)


def _affine(augmentation: Augmentation, preprocessing: Preprocessing) -> Transform:
    affine = RandomAffine(
        augmentation.rotate,
        (augmentation.translate, augmentation.translate),
        augmentation.scale,
        augmentation.shear,
        interpolation=InterpolationMode.BILINEAR,
    )
    transform: Transform = Compose(
        [
            partial(to_input_size, preprocessing=preprocessing),
            affine,
            RandomHorizontalFlip(augmentation.hflip),
            partial(_to_input, preprocessing=preprocessing),
        ]
    )
    return transform


def _crop(augmentation: Augmentation, preprocessing: Preprocessing) -> Transform:
    transform: Transform = create_transform(
        preprocessing.input_size,
        is_training=True,
        interpolation=preprocessing.interpolation.value,
        mean=preprocessing.mean,
        std=preprocessing.std,
        scale=augmentation.scale,
        hflip=augmentation.hflip,
        color_jitter=augmentation.color_jitter,
        auto_augment=augmentation.auto_augment,
        re_prob=augmentation.erase,
        re_mode="pixel",
    )
    return transform


def _to_input(image: Image.Image, preprocessing: Preprocessing) -> Tensor:
    return torch.from_numpy(normalise(to_pixels(image), preprocessing))
