"""The settings of training runs, and the values that a fine-tuning starts from: a preset's, with a model's own."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from exporter import bundled
from exporter.core.base.errors import RecipeError
from exporter.core.base.files import PathLike
from exporter.core.base.settings import (
    LARGEST,
    Above0,
    Batch,
    Natural,
    Number,
    Positive,
    Settings,
    Threads,
    Weight,
    option,
)
from exporter.models.identity import read_identity


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
        "affine": Augmentation(
            affine=True, rotate=12.0, shear=8.0, translate=0.15, scale=(0.5, 1.0)
        ),
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


NotBelow0 = Annotated[
    float, Meta(ge=0, le=LARGEST, description="a number of at least 0")
]
Below1 = Annotated[float, Meta(ge=0, lt=1, description="a number in [0, 1)")]


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(Settings):
    """How a pruned model is fine-tuned; the defaults are the STAR paper's, with the authors' distillation."""

    epochs: Positive = option(120, "Passes over the training images.")
    batch_size: Batch = option(256, "Images per step, over all processes together.")
    lr: Above0 = option(
        2e-5,
        "Highest learning rate, not scaled by the batch size; cosine decay to min-lr.",
    )
    min_lr: Above0 = option(2e-9, "Last learning rate.", flag=False)
    warmup_epochs: Natural = option(
        0,
        "Epochs over which the learning rate rises; included in `epochs`.",
        flag=False,
    )
    weight_decay: NotBelow0 = option(
        0.05,
        "Weight decay of AdamW; not applied to biases, norms and embeddings.",
        flag=False,
    )
    clip_grad: NotBelow0 = option(
        0.0, "Largest norm of the gradient; 0: no clipping.", flag=False
    )
    distillation: Weight = option(
        0.25,
        "Weight of the teacher's class in the loss; the label has the rest.",
        flag=False,
    )
    smoothing: Below1 = option(0.1, "Label smoothing, a share in [0, 1).", flag=False)
    ema_decay: Below1 = option(
        0.99996,
        "Decay of the moving average of the weights, which is the result; 0: no averaging.",
        flag=False,
    )
    augment: str = option(
        "deit",
        "affine: rotate, shear and shift, never mirror; for digits and signs. crop: crop and mirror; for photos. "
        "deit: as in DeiT, also RandAugment, erasing, mixup and cutmix. none: no augmentation. The settings below "
        "override its values.",
        AUGMENTATIONS,
        flag=False,
    )
    rotate: Number | None = option(
        None, "affine: largest rotation in both directions, in degrees.", flag=False
    )
    shear: Number | None = option(
        None, "affine: largest shear in both directions, in degrees.", flag=False
    )
    translate: Weight | None = option(
        None, "affine: largest shift, as a share of the side.", flag=False
    )
    scale: tuple[Above0, Above0] | None = option(
        None,
        "affine: range of the zoom; crop, deit: range of the area kept, at most 1.",
        flag=False,
    )
    hflip: Weight | None = option(
        None, "Probability of mirroring left and right.", flag=False
    )
    auto_augment: str | None = option(
        None,
        "crop, deit: timm's augmentation policy, e.g. rand-m9-mstd0.5; it replaces the jitter.",
        flag=False,
    )
    mixup: NotBelow0 | None = option(
        None, "Alpha of mixup, the blending of two images; 0: none.", flag=False
    )
    cutmix: NotBelow0 | None = option(
        None,
        "Alpha of cutmix, the pasting of one image into another; 0: none.",
        flag=False,
    )
    repeats: Positive | None = option(
        None,
        "Variants of an image in a batch (repeated augmentation); an epoch then has fewer different images.",
        flag=False,
    )
    amp: bool = option(
        False,
        "Compute in bfloat16 by PyTorch's autocast. The paper trained in mixed precision: add this on a GPU.",
    )
    workers: Threads = option(
        0, "Processes that load images, for each training process.", flag=False
    )
    seed: Natural = option(
        0, "Seed of the weights, the order and the augmentation.", flag=False
    )
    max_train_images: Positive | None = option(
        None, "Most images of --images to train on, drawn by the seed; by default all."
    )

    @property
    def augmentation(self) -> Augmentation:
        """The named augmentation with the values given in its place."""
        values = {
            field.name: getattr(self, field.name, None)
            for field in fields(Augmentation)
        }
        return replace(
            AUGMENTATIONS[self.augment],
            **{name: value for name, value in values.items() if value is not None},
        )

    def check(self) -> None:
        """Raise RecipeError for settings that contradict each other."""
        self.require("warmup_epochs", self.warmup_epochs < self.epochs, "below epochs")
        self.require("min_lr", self.min_lr <= self.lr, "at most lr")
        low, high = self.augmentation.scale
        self.require("scale", low <= high, "the lower one first")
        self.require(
            "scale",
            self.augmentation.affine or high <= 1,
            "at most 1, being a share of the area",
        )


# The settings that say how images are augmented.
AUGMENTED = ("augment", *Augmentation.__dataclass_fields__)


def preset_values(
    preset: str,
    model: str | None = None,
    checkpoint: PathLike | None = None,
    *,
    own_augmentation: bool = True,
) -> dict[str, Any]:
    """Return the values of `FinetuneSettings` that differ from its defaults.

    A bundled model, and a checkpoint of one, is augmented as in its own training.

    Args:
        preset: A name of PRESETS.
        model: The model's name; what the checkpoint says of itself goes before it.
        checkpoint: The weights to train, None for those that come with the name.
        own_augmentation: False: augment as the preset says, whatever the model.

    Raises:
        RecipeError: There is no such preset.
        ArtefactError: What the checkpoint says of itself is broken.
    """
    if preset not in PRESETS:
        raise RecipeError("--preset", repr(preset), f"one of {', '.join(PRESETS)}")
    identity = None if checkpoint is None else read_identity(Path(checkpoint))
    known = bundled.MODELS.get(identity.name if identity else model or "")
    if known is None or not own_augmentation:
        return dict(PRESETS[preset])
    trained = known.record["settings"]
    return {
        **PRESETS[preset],
        **{name: trained[name] for name in AUGMENTED if name in trained},
    }
