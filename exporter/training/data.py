"""Image folders, one folder a class, and what happens to an image before the model sees it."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from timm.data import create_transform
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, InterpolationMode, RandomAffine, RandomHorizontalFlip

from exporter.errors import ImageError
from exporter.training.settings import TrainSettings

__all__ = ["folder_sha256", "open_folders", "test_transform", "train_loader", "train_transform"]

Transform = Callable[[Image.Image], Tensor]


def open_folders(train: Path, held_out: Path) -> tuple[ImageFolder, ImageFolder]:
    """Both folders, which must hold the same classes.

    Raises:
        ImageError: A folder is missing or holds no image, or the classes are too few or differ.
    """
    folders = _open(train), _open(held_out)
    names, others = (folder.classes for folder in folders)
    if len(names) < 2:
        raise ImageError(str(train), f"{len(names)} class", "at least 2 folders, one a class")
    if names != others:
        first = sorted(set(names) ^ set(others))[0]
        raise ImageError(
            str(held_out), f"{len(others)} classes", f"the {len(names)} of {train}", f"first: {first!r}"
        )
    return folders


def _open(root: Path) -> ImageFolder:
    try:
        return ImageFolder(str(root), loader=_load)
    except FileNotFoundError as error:
        raise ImageError(str(root), str(error).splitlines()[0], "one folder of images a class") from None


def _load(path: str) -> Image.Image:
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise ImageError(path, type(error).__name__, "an image that Pillow reads") from None


def folder_sha256(folder: ImageFolder) -> str:
    """Hex digest over the relative paths and the bytes of all images, in the order of the paths."""
    digest = hashlib.sha256()
    for path, _ in folder.samples:
        content = Path(path).read_bytes()
        digest.update(f"{Path(path).relative_to(folder.root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def test_transform(config: dict[str, Any]) -> Compose:
    """The transform of test images, which is timm's own for that preprocessing."""
    return create_transform(**config, is_training=False)


def train_transform(config: dict[str, Any], settings: TrainSettings) -> Compose:
    """The test transform with random changes between its geometry and its normalisation."""
    if settings.augment == "crop":
        return create_transform(
            **config,
            is_training=True,
            scale=settings.scale,
            hflip=settings.hflip,
            auto_augment=settings.auto_augment,
        )
    resize, crop, to_tensor, normalise = test_transform(config).transforms
    affine = RandomAffine(
        settings.rotate,
        (settings.translate, settings.translate),
        settings.scale,
        settings.shear,
        interpolation=InterpolationMode.BILINEAR,
    )
    return Compose([resize, crop, affine, RandomHorizontalFlip(settings.hflip), to_tensor, normalise])


def train_loader(
    folder: ImageFolder, settings: TrainSettings, epoch: int
) -> DataLoader[tuple[Tensor, Tensor]]:
    """The images of one epoch; their order depends on the seed and the epoch alone."""
    generator = torch.Generator().manual_seed(settings.seed * 100_003 + epoch)
    return DataLoader(
        folder,
        batch_size=settings.batch_size,
        shuffle=True,
        generator=generator,
        num_workers=settings.workers,
        pin_memory=settings.device.startswith("cuda"),
    )
