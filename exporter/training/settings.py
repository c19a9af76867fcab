"""Everything that a training run can be told, once: the flags and the record's JSON follow from it."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from exporter.errors import RecipeError
from exporter.settings import Natural, Positive, Settings, Share, Weight, option

__all__ = ["TrainSettings"]

Above0 = Annotated[float, Meta(gt=0, description="a number above 0")]
NotBelow0 = Annotated[float, Meta(ge=0, description="a number of at least 0")]
Below1 = Annotated[float, Meta(ge=0, lt=1, description="a number in [0, 1)")]


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """How a model is trained; the images and the place of the result are given beside it."""

    model: str = option("vit_tiny_patch16_224", "Name of the architecture: timm's, lvvit_s or lvvit_m.")
    model_kwargs: dict[str, Any] = option(
        {}, "What differs from the architecture, e.g. img_size=56 depth=12."
    )
    epochs: Positive = option(100, "Passes over the training images.")
    small_epochs: Natural = option(
        0, "How many of the first epochs see images of half the side, which costs a quarter."
    )
    batch_size: Positive = option(64, "Images per step.")
    lr: Above0 = option(1e-3, "Highest learning rate; it falls to a hundredth along a cosine.")
    warmup_epochs: Natural = option(5, "Epochs over which the learning rate rises, counted in `epochs`.")
    weight_decay: NotBelow0 = option(0.05, "AdamW's weight decay; biases, norms and embeddings have none.")
    clip_grad: NotBelow0 = option(1.0, "Largest norm of the gradient; 0 leaves it alone.")
    distillation: Weight = option(
        0.5, "Share of the loss that is the teacher's class; the label has the rest."
    )
    smoothing: Below1 = option(0.1, "Label smoothing, a share in [0, 1).")
    ema_decay: Below1 = option(
        0.0, "Decay of the averaged weights that are then the result; 0 averages none."
    )
    augment: str = option(
        "affine", "affine keeps the whole object, crop is timm's own recipe.", ("affine", "crop")
    )
    rotate: float = option(12.0, "affine: largest rotation, degrees either way.")
    shear: float = option(8.0, "affine: largest shear, degrees either way.")
    translate: Weight = option(0.15, "affine: largest shift, as a share of the side.")
    scale: tuple[Above0, Above0] = option(
        (0.5, 1.0), "affine: range of the zoom; crop: range of the area kept, at most 1."
    )
    hflip: Weight = option(0.0, "Probability of mirroring left and right.")
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
    crop_pct: Share | None = option(
        None, "Share of the resized side that is kept; the model's own by default."
    )
    amp: bool = option(False, "Compute in bfloat16 where PyTorch's autocast holds it safe.")
    fp16: bool = option(True, "Write half-precision weights; accuracy is measured on what is written.")
    device: str = option("cpu", "PyTorch's name of the device, e.g. cpu or cuda.")
    threads: Natural = option(0, "CPU threads; 0 leaves PyTorch's choice. Results depend on it.")
    workers: Natural = option(0, "Processes that load images.")
    seed: Natural = option(0, "Seed of the weights, the order and the augmentation.")

    def check(self) -> None:
        """Refuse what cannot be trained."""
        low, high = self.scale
        for name, holds, expected in (
            ("small_epochs", self.small_epochs <= self.epochs, "epochs at most"),
            ("warmup_epochs", self.warmup_epochs < self.epochs, "below epochs"),
            ("scale", low <= high, "the lower one first"),
            ("scale", self.augment == "affine" or high <= 1, "at most 1, being a share of the area"),
        ):
            if not holds:
                raise RecipeError(name, f"{getattr(self, name)}", expected)

    def preprocessing(self) -> dict[str, Any]:
        """What is to replace the model's own preprocessing, by timm's keys."""
        keys = ("mean", "std", "interpolation", "crop_pct")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
