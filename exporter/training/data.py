"""The batches of each epoch of a training run."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import torch
from accelerate.data_loader import prepare_data_loader
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from typing_extensions import override

from exporter.data.images import ImageFolder
from exporter.data.pixels import read_rgb
from exporter.errors import ImageError
from exporter.processes import processes
from exporter.records import Preprocessing
from exporter.training.augment import Transform, mixing, seeded, transform_of
from exporter.training.finetune import Batch
from exporter.training.settings import LoopSettings

__all__ = ["TrainBatches"]

logger = logging.getLogger(__name__)


@dataclass
class TrainBatches:
    """The batches of an epoch: images float32 [batch, 3, H, W] and classes int64 [batch], or their probabilities.

    Order and variants depend only on the seed, the epoch and the image, so neither on the number of processes that
    train nor on that of those that load images; mixing also depends on the process. Each training process gets its
    part of every batch. Images left over at the end of an epoch wait for another one. An image that cannot be read
    is replaced by the next one that can, and noted in `skipped` with the reason.

    Attributes:
        images: Labelled.
        settings: Batch size, augmentation, seed.
        preprocessing: The model's.
        num_classes: The model's.
        skipped: Reason by image, of the images that this process was to read; `finetune` adds those of the others.
    """

    images: ImageFolder
    settings: LoopSettings
    preprocessing: Preprocessing
    num_classes: int
    skipped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._transform = transform_of(self.settings.augmentation, self.preprocessing)

    def __call__(self, epoch: int) -> Iterable[Batch]:
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
            loader, num_processes=crew.count, process_index=crew.index, split_batches=True, rng_types=[]
        )
        return self._made(mine)

    def _made(self, loaded: Iterable[tuple[Tensor, Tensor, list[str]]]) -> Iterator[Batch]:
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
        every = (place + self.total * time for place in order for time in range(self.repeats))
        return islice(every, self.total)


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
                skipped = skipped or f"{self.images.name_of(file)}\t{error.got}"
                continue
            with seeded(self.seed * 1_000_003 + index):
                return self.transform(image), file.label, skipped
        raise ImageError(
            str(self.images.root), f"{len(self)} images, none of which can be read", "readable images"
        )
