"""The settings of training runs; the flags and the JSON of the records derive from them."""

from dataclasses import dataclass, fields, replace
from typing import Annotated

from msgspec import Meta

from exporter.settings import (
    LARGEST,
    Natural,
    Number,
    Positive,
    Settings,
    Threads,
    Weight,
    option,
    redeclared,
)
from exporter.training.presets import AUGMENTATIONS, Augmentation

__all__ = ["FinetuneSettings", "LoopSettings"]

Above0 = Annotated[float, Meta(gt=0, le=LARGEST, description="a number above 0")]
NotBelow0 = Annotated[float, Meta(ge=0, le=LARGEST, description="a number of at least 0")]
Below1 = Annotated[float, Meta(ge=0, lt=1, description="a number in [0, 1)")]


@dataclass(frozen=True, kw_only=True)
class LoopSettings(Settings):
    """How weights are optimised and images are augmented; the defaults are those of training from scratch."""

    epochs: Positive = option(100, "Passes over the training images.")
    batch_size: Positive = option(64, "Images per step, over all processes together.")
    lr: Above0 = option(1e-3, "Highest learning rate, not scaled by the batch size; cosine decay to min-lr.")
    min_lr: Above0 | None = option(None, "Last learning rate; if not set, a hundredth of lr.", flag=False)
    warmup_epochs: Natural = option(
        5, "Epochs over which the learning rate rises; included in `epochs`.", flag=False
    )
    weight_decay: NotBelow0 = option(
        0.05, "Weight decay of AdamW; not applied to biases, norms and embeddings.", flag=False
    )
    clip_grad: NotBelow0 = option(1.0, "Largest norm of the gradient; 0: no clipping.", flag=False)
    distillation: Weight = option(
        0.5, "Weight of the teacher's class in the loss; the label has the rest.", flag=False
    )
    smoothing: Below1 = option(0.1, "Label smoothing, a share in [0, 1).", flag=False)
    ema_decay: Below1 = option(
        0.0, "Decay of the moving average of the weights, which is the result; 0: no averaging.", flag=False
    )
    augment: str = option(
        "affine",
        "affine: rotate, shear and shift, never mirror; for digits and signs. crop: crop and mirror; for photos. "
        "deit: as in DeiT, also RandAugment, erasing, mixup and cutmix. none: no augmentation. The settings below "
        "override its values.",
        AUGMENTATIONS,
        flag=False,
    )
    rotate: Number | None = option(
        None, "affine: largest rotation in both directions, in degrees.", flag=False
    )
    shear: Number | None = option(None, "affine: largest shear in both directions, in degrees.", flag=False)
    translate: Weight | None = option(None, "affine: largest shift, as a share of the side.", flag=False)
    scale: tuple[Above0, Above0] | None = option(
        None, "affine: range of the zoom; crop, deit: range of the area kept, at most 1.", flag=False
    )
    hflip: Weight | None = option(None, "Probability of mirroring left and right.", flag=False)
    color_jitter: NotBelow0 | None = option(
        None, "crop: change of brightness, contrast and saturation.", flag=False
    )
    auto_augment: str | None = option(
        None,
        "crop, deit: timm's augmentation policy, e.g. rand-m9-mstd0.5; it replaces the jitter.",
        flag=False,
    )
    erase: Weight | None = option(None, "crop, deit: probability of erasing a rectangle.", flag=False)
    mixup: NotBelow0 | None = option(None, "Alpha of mixup, the blending of two images; 0: none.", flag=False)
    cutmix: NotBelow0 | None = option(
        None, "Alpha of cutmix, the pasting of one image into another; 0: none.", flag=False
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
    workers: Threads = option(0, "Processes that load images, for each training process.", flag=False)
    seed: Natural = option(0, "Seed of the weights, the order and the augmentation.", flag=False)

    @property
    def augmentation(self) -> Augmentation:
        """The named augmentation with the values given in its place."""
        own = {each.name: getattr(self, each.name, None) for each in fields(Augmentation)}
        return replace(
            AUGMENTATIONS[self.augment], **{name: value for name, value in own.items() if value is not None}
        )

    @property
    def last_lr(self) -> float:
        """The learning rate at the end."""
        return self.lr / 100 if self.min_lr is None else self.min_lr

    def check(self) -> None:
        """Raise RecipeError for settings that contradict each other."""
        self.require("warmup_epochs", self.warmup_epochs < self.epochs, "below epochs")
        self.require("min_lr", self.last_lr <= self.lr, "at most lr")
        low, high = self.augmentation.scale
        self.require("scale", low <= high, "the lower one first")
        self.require("scale", self.augmentation.affine or high <= 1, "at most 1, being a share of the area")


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(LoopSettings):
    """How a pruned model is fine-tuned; the defaults are the STAR paper's, with the authors' distillation."""

    epochs: Positive = redeclared(LoopSettings, "epochs", 120)
    batch_size: Positive = redeclared(LoopSettings, "batch_size", 256)
    lr: Above0 = redeclared(LoopSettings, "lr", 2e-5)
    min_lr: Above0 | None = redeclared(LoopSettings, "min_lr", 2e-9)
    warmup_epochs: Natural = redeclared(LoopSettings, "warmup_epochs", 0)
    clip_grad: NotBelow0 = redeclared(LoopSettings, "clip_grad", 0.0)
    distillation: Weight = redeclared(LoopSettings, "distillation", 0.25)
    ema_decay: Below1 = redeclared(LoopSettings, "ema_decay", 0.99996)
    augment: str = redeclared(LoopSettings, "augment", "deit")
