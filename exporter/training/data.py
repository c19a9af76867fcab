"""Image folders of a training run, with one subfolder per class, and the batches of each epoch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from typing_extensions import override

from exporter.data.images import ImageFile, ImageFolder, class_names, list_images
from exporter.data.pixels import read_rgb
from exporter.errors import ImageError
from exporter.records import Preprocessing
from exporter.training.augment import augmentation
from exporter.training.finetune import Batch, Batches
from exporter.training.settings import TrainSettings

__all__ = ["Folders", "open_folders", "train_batches"]


@dataclass(frozen=True)
class Folders:
    """Training images, and held-out images of the same classes."""

    class_names: tuple[str, ...]
    train: ImageFolder
    held_out: ImageFolder


def open_folders(train: Path, held_out: Path) -> Folders:
    """List both folders, which must contain images of every class.

    Raises:
        ImageError: A folder is missing or contains no image, or the classes are too few or differ.
    """
    (names, images), (others, measured) = _open(train), _open(held_out)
    if len(names) < 2:
        raise ImageError(str(train), f"{len(names)} class", "at least 2 folders, one per class")
    if names != others:
        first = sorted(set(names) ^ set(others))[0]
        raise ImageError(
            str(held_out), f"{len(others)} classes", f"the {len(names)} of {train}", f"first: {first!r}"
        )
    return Folders(names, images, measured)


def train_batches(images: ImageFolder, settings: TrainSettings, preprocessing: Preprocessing) -> Batches:
    """Return a function of the epoch: batches of images float32 [batch, 3, H, W] and classes int64 [batch].

    The order depends only on the seed and the epoch. The first epochs may use images of half the side.
    """
    return partial(_of_epoch, _Images(images.files, augmentation(settings, preprocessing)), settings)


class _Images(Dataset[tuple[Tensor, int]]):
    """Augmented images and their classes."""

    def __init__(self, files: tuple[ImageFile, ...], transform: Callable[[Image.Image], Tensor]) -> None:
        self.files, self.transform = files, transform

    def __len__(self) -> int:
        return len(self.files)

    @override
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file = self.files[index]
        assert file.label is not None
        return self.transform(read_rgb(file.path)), file.label


def _open(root: Path) -> tuple[tuple[str, ...], ImageFolder]:
    if not root.is_dir():
        raise ImageError(str(root), "no such folder", "one folder of images per class")
    names = class_names(root)
    images = list_images(root, num_classes=len(names))
    for file in images.files:
        if file.label is None:
            raise ImageError(
                str(file.path), "an image outside the class folders", "one folder of images per class"
            )
    labels = {file.label for file in images.files}
    for label, name in enumerate(names):
        if label not in labels:
            raise ImageError(str(root / name), "no image", "one folder of images per class")
    return names, images


def _of_epoch(images: _Images, settings: TrainSettings, epoch: int) -> Iterable[Batch]:
    generator = torch.Generator().manual_seed(settings.seed * 100_003 + epoch)
    loader = DataLoader(
        images,
        batch_size=settings.batch_size,
        shuffle=True,
        generator=generator,
        num_workers=settings.workers,
        pin_memory=settings.device.startswith("cuda"),
    )
    return map(_halved, loader) if epoch < settings.small_epochs else loader


def _halved(batch: Batch) -> Batch:
    images, labels = batch
    return F.interpolate(images, scale_factor=0.5, mode="bicubic", antialias=True), labels
