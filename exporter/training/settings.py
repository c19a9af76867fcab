"""Everything that a training run can be told, once: the flags and the record's JSON follow from it."""

from dataclasses import dataclass
from typing import Any

from exporter.errors import RecipeError
from exporter.settings import option

__all__ = ["TrainSettings"]


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model is trained; the images and the place of the result are given beside it."""

    model: str = option("vit_tiny_patch16_224", "Name of the architecture: timm's, lvvit_s or lvvit_m.")
    model_kwargs: dict[str, Any] = option(
        {}, "What differs from the architecture, e.g. img_size=56 depth=12."
    )
    epochs: int = option(100, "Passes over the training images.")
    small_epochs: int = option(
        0, "How many of the first epochs see images of half the side, which costs a quarter."
    )
    batch_size: int = option(64, "Images per step.")
    lr: float = option(1e-3, "Highest learning rate; it falls to a hundredth along a cosine.")
    warmup_epochs: int = option(5, "Epochs over which the learning rate rises, counted in `epochs`.")
    weight_decay: float = option(0.05, "AdamW's weight decay; biases, norms and embeddings have none.")
    clip_grad: float = option(1.0, "Largest norm of the gradient; 0 leaves it alone.")
    distillation: float = option(
        0.5, "Share of the loss that is the teacher's class; the label has the rest."
    )
    smoothing: float = option(0.1, "Label smoothing, a share in [0, 1).")
    ema_decay: float = option(0.0, "Decay of the averaged weights that are then the result; 0 averages none.")
    augment: str = option(
        "affine", "affine keeps the whole object, crop is timm's own recipe.", ("affine", "crop")
    )
    rotate: float = option(12.0, "affine: largest rotation, degrees either way.")
    shear: float = option(8.0, "affine: largest shear, degrees either way.")
    translate: float = option(0.15, "affine: largest shift, as a share of the side.")
    scale: tuple[float, float] = option(
        (0.5, 1.0), "affine: range of the zoom; crop: range of the area kept, at most 1."
    )
    hflip: float = option(0.0, "Probability of mirroring left and right.")
    auto_augment: str | None = option(None, "crop: timm's augmentation policy, e.g. rand-m9-mstd0.5.")
    mean: tuple[float, float, float] | None = option(
        None, "Mean of each channel; the model's own by default."
    )
    std: tuple[float, float, float] | None = option(
        None, "Deviation of each channel; the model's own by default."
    )
    interpolation: str | None = option(
        None, "Filter of the resize; the model's own by default.", ("nearest", "bilinear", "bicubic")
    )
    crop_pct: float | None = option(
        None, "Share of the resized side that is kept; the model's own by default."
    )
    amp: bool = option(False, "Compute in bfloat16 where PyTorch's autocast holds it safe.")
    fp16: bool = option(True, "Write half-precision weights; accuracy is measured on what is written.")
    device: str = option("cpu", "PyTorch's name of the device, e.g. cpu or cuda.")
    threads: int = option(0, "CPU threads; 0 leaves PyTorch's choice. Results depend on it.")
    workers: int = option(0, "Processes that load images.")
    seed: int = option(0, "Seed of the weights, the order and the augmentation.")

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        low, high = self.scale
        for name, holds, expected in (
            ("epochs", self.epochs >= 1, "at least 1"),
            ("small_epochs", 0 <= self.small_epochs <= self.epochs, "between 0 and epochs"),
            ("batch_size", self.batch_size >= 1, "at least 1"),
            ("lr", self.lr > 0, "above 0"),
            ("warmup_epochs", 0 <= self.warmup_epochs < self.epochs, "below epochs"),
            ("distillation", 0 <= self.distillation <= 1, "in [0, 1]"),
            ("smoothing", 0 <= self.smoothing < 1, "in [0, 1)"),
            ("ema_decay", 0 <= self.ema_decay < 1, "in [0, 1)"),
            ("translate", 0 <= self.translate <= 1, "in [0, 1]"),
            ("scale", 0 < low <= high, "two numbers above 0, the lower first"),
            ("scale", self.augment == "affine" or high <= 1, "at most 1, being a share of the area"),
            ("crop_pct", self.crop_pct is None or 0 < self.crop_pct <= 1, "in (0, 1]"),
        ):
            if not holds:
                raise RecipeError(name, f"{getattr(self, name)}", expected)

    def preprocessing(self) -> dict[str, Any]:
        """What is to replace the model's own preprocessing, by timm's keys."""
        keys = ("mean", "std", "interpolation", "crop_pct")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
