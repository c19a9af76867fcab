"""The batches of each epoch of a training run: their images, and random augmentation of each and within a batch."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from random import getstate, setstate
from typing import Any

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from PIL import Image
from timm.data import Mixup, create_transform
from timm.data.auto_augment import AugmentOp, posterize
from timm.utils import random_seed
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.transforms import (
    Compose,
    InterpolationMode,
    RandomAffine,
    RandomHorizontalFlip,
)
from typing_extensions import override

from exporter.core.base.errors import ImageError, RecipeError
from exporter.core.base.records import Preprocessing, normalise
from exporter.data.images import ImageFolder
from exporter.data.pixels import read_rgb, to_input_size, to_pixels
from exporter.processes import processes
from exporter.training.finetune import TrainBatch
from exporter.training.settings import Augmentation, FinetuneSettings

Transform = Callable[[Image.Image], Tensor]


def transform_of(augmentation: Augmentation, preprocessing: Preprocessing) -> Transform:
    """Return a transform from an RGB image to a random, preprocessed variant: float32 [3, height, width]."""
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
        augmentation.mixup,
        augmentation.cutmix,
        label_smoothing=0.0,
        num_classes=num_classes,
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
    for operation in _operations(transform):
        if operation.aug_fn is posterize:
            operation.aug_fn = _posterized
    return transform


def _operations(part: Any) -> Iterator[AugmentOp]:
    """Yield the operations of timm's policies within a transform."""
    if isinstance(part, AugmentOp):
        yield part
    elif isinstance(part, list):
        for inner in part:
            yield from _operations(inner)
    else:
        for name in ("transforms", "ops", "policy"):
            yield from _operations(getattr(part, name, []))


def _posterized(image: Image.Image, bits: int, **options: Any) -> Image.Image:
    """Keep so many bits of each channel: without any it is black, which Pillow refuses from version 13 on."""
    if bits:
        return posterize(image, bits, **options)
    return Image.new(image.mode, image.size)


def _to_input(image: Image.Image, preprocessing: Preprocessing) -> Tensor:
    return torch.from_numpy(normalise(to_pixels(image), preprocessing))


logger = logging.getLogger(__name__)


@dataclass
class TrainBatches:
    """The batches of an epoch: images float32 [batch, 3, H, W] and classes int64 [batch], or their probabilities.

    Order and variants depend only on the seed, the epoch and the image, so neither on the number of processes that
    train nor on that of those that load images; mixing also depends on the process. Each training process gets its
    part of every batch. Images left over at the end of an epoch wait for another one. An image that cannot be read
    is replaced by the next one that can, and noted in `skipped` with the reason; `finetune` adds those of others.
    """

    images: ImageFolder
    settings: FinetuneSettings
    preprocessing: Preprocessing
    num_classes: int
    skipped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._transform = transform_of(self.settings.augmentation, self.preprocessing)

    def __call__(self, epoch: int) -> Iterable[TrainBatch]:
        """Yield the batches of an epoch, counted from 0."""
        settings, total = self.settings, len(self.images.files)
        seed = settings.seed * 100_003 + epoch
        generator = torch.Generator().manual_seed(seed)
        loader = DataLoader(
            _Images(self.images, self._transform, seed),
            batch_size=settings.batch_size,
            sampler=_Repeated(total, settings.augmentation.repeats, generator),
            drop_last=total > settings.batch_size,
            generator=generator,
            num_workers=settings.workers,
            pin_memory=torch.cuda.is_available(),
        )
        crew = processes()
        mine = prepare_data_loader(
            loader,
            num_processes=crew.count,
            process_index=crew.index,
            split_batches=True,
            rng_types=[],
        )
        return self._made(mine)

    def _made(
        self, loaded: Iterable[tuple[Tensor, Tensor, list[str]]]
    ) -> Iterator[TrainBatch]:
        """Note what was skipped, and mix the images."""
        mix = mixing(self.settings.augmentation, self.num_classes)
        for images, labels, reasons in loaded:
            self._note(reasons)
            if mix is None:
                yield images, labels
            else:
                even = len(images) // 2 * 2  # images are mixed in pairs
                yield mix(images[:even], labels[:even])

    def _note(self, reasons: Iterable[str]) -> None:
        for reason in filter(None, reasons):
            name, _, why = reason.partition("\t")
            if name not in self.skipped:
                logger.warning("skipped %s: %s", name, why)
                self.skipped[name] = why


class _Repeated(Sampler[int]):
    """As many places as there are images, drawn at random, each `repeats` times in turn (Hoffer et al., 2020).

    The n-th repetition of an image is `total` * n beyond it. Images that do not fit wait for another epoch.
    """

    def __init__(self, total: int, repeats: int, generator: torch.Generator) -> None:
        self.total, self.repeats, self.generator = total, repeats, generator

    def __len__(self) -> int:
        return self.total

    @override
    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.total, generator=self.generator).tolist()
        variants = (
            place + self.total * time for place in order for time in range(self.repeats)
        )
        return islice(variants, self.total)


class _Images(Dataset[tuple[Tensor, int, str]]):
    """Augmented images, their classes, and "name<tab>reason" of the first image that was skipped for each.

    Beyond the last image, the same ones follow in other variants.
    """

    def __init__(self, images: ImageFolder, transform: Transform, seed: int) -> None:
        self.images, self.transform, self.seed = images, transform, seed

    def __len__(self) -> int:
        return len(self.images.files)

    @override
    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        skipped = ""
        for place in range(index, index + len(self)):
            file = self.images.files[place % len(self)]
            assert file.label is not None
            try:
                image = read_rgb(file)
            except ImageError as error:
                skipped = skipped or f"{self.images.name_of(file.path)}\t{error.got}"
                continue
            with seeded(self.seed * 1_000_003 + index):
                return self.transform(image), file.label, skipped
        raise ImageError(
            self.images.root,
            f"{len(self)} images, none of which can be read",
            "readable images",
        )
