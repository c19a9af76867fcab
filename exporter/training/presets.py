"""Named sets of values for training: how images are augmented, and how long and how fast a model is fine-tuned."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Augmentation:
    """How training images are varied; the names are those of the settings.

    `affine`: by an affine transform of the evaluation crop; else by a random crop of the image. Probabilities are
    shares; `mixup` and `cutmix` are the parameters alpha of their beta distributions, 0 for none; `repeats` is how
    many variants of an image a batch has.
    """

    affine: bool = False
    rotate: float = 0.0
    shear: float = 0.0
    translate: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    hflip: float = 0.0
    color_jitter: float = 0.0
    auto_augment: str | None = None
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    repeats: int = 1


AUGMENTATIONS: Mapping[str, Augmentation] = MappingProxyType(
    {
        # The whole object stays in view and is never mirrored: for digits, letters, signs.
        "affine": Augmentation(affine=True, rotate=12.0, shear=8.0, translate=0.15, scale=(0.5, 1.0)),
        # For photos.
        "crop": Augmentation(scale=(0.5, 1.0), hflip=0.5),
        # DeiT's training (Touvron et al., 2021, Table 9).
        "deit": Augmentation(
            scale=(0.08, 1.0),
            hflip=0.5,
            color_jitter=0.3,
            auto_augment="rand-m9-mstd0.5-inc1",
            erase=0.25,
            mixup=0.8,
            cutmix=1.0,
            repeats=3,
        ),
        "none": Augmentation(affine=True),
    }
)

# Values of `FinetuneSettings` that differ from its defaults, which are those of the STAR paper.
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper": {},
        "short": {
            "epochs": 5,
            "batch_size": 64,
            "lr": 2e-4,
            "min_lr": 2e-6,
            "clip_grad": 1.0,
            "distillation": 0.5,
            "ema_decay": 0.0,
            "augment": "crop",
        },
    }
)
