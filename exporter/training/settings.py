"""All settings of a training run; the flags and the JSON of the record derive from them."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from exporter.settings import LARGEST, Natural, Number, Positive, Settings, Share, Weight, option

__all__ = ["TrainSettings"]

Above0 = Annotated[float, Meta(gt=0, le=LARGEST, description="a number above 0")]
NotBelow0 = Annotated[float, Meta(ge=0, le=LARGEST, description="a number of at least 0")]
Below1 = Annotated[float, Meta(ge=0, lt=1, description="a number in [0, 1)")]
Triple = tuple[Number, Number, Number]


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """How a model is trained; images and output file are given separately."""

    model: str = option("vit_tiny_patch16_224", "Architecture: a timm name, lvvit_s or lvvit_m.")
    model_kwargs: dict[str, Any] = option(
        {}, "Keyword arguments of the architecture, e.g. img_size=56 depth=12."
    )
    epochs: Positive = option(100, "Passes over the training images.")
    small_epochs: Natural = option(
        0, "Number of first epochs on images of half the side, at a quarter of the cost."
    )
    batch_size: Positive = option(64, "Images per step.")
    lr: Above0 = option(1e-3, "Highest learning rate; cosine decay to a hundredth of it.")
    warmup_epochs: Natural = option(5, "Epochs over which the learning rate rises; included in `epochs`.")
    weight_decay: NotBelow0 = option(0.05, "AdamW's weight decay; biases, norms and embeddings have none.")
    clip_grad: NotBelow0 = option(1.0, "Largest norm of the gradient; 0: no clipping.")
    distillation: Weight = option(0.5, "Weight of the teacher's class in the loss; the rest is the label's.")
    smoothing: Below1 = option(0.1, "Label smoothing, a share in [0, 1).")
    ema_decay: Below1 = option(0.0, "Decay of the weight average, which becomes the result; 0: no averaging.")
    augment: str = option(
        "affine", "affine: keeps the whole object in view. crop: timm's recipe.", ("affine", "crop")
    )
    rotate: Number = option(12.0, "affine: largest rotation, degrees either way.")
    shear: Number = option(8.0, "affine: largest shear, degrees either way.")
    translate: Weight = option(0.15, "affine: largest shift, as a share of the side.")
    scale: tuple[Above0, Above0] = option(
        (0.5, 1.0), "affine: range of the zoom; crop: range of the area kept, at most 1."
    )
    hflip: Weight = option(0.0, "Probability of mirroring left and right.")
    auto_augment: str | None = option(None, "crop: timm's augmentation policy, e.g. rand-m9-mstd0.5.")
    mean: Triple | None = option(None, "Mean of each channel; by default the model's.")
    std: Triple | None = option(None, "Standard deviation of each channel; by default the model's.")
    interpolation: str | None = option(
        None, "Filter of the resize; by default the model's.", ("nearest", "bilinear", "bicubic")
    )
    crop_pct: Share | None = option(
        None, "Share of the resized side that the crop keeps; by default the model's."
    )
    amp: bool = option(False, "Compute in bfloat16 by PyTorch's autocast.")
    fp16: bool = option(True, "Write fp16 weights; accuracy is measured with the written weights.")
    device: str = option("cpu", "PyTorch device, e.g. cpu or cuda.")
    threads: Natural = option(0, "CPU threads; 0 is PyTorch's default. Results depend on it.")
    workers: Natural = option(0, "Processes that load images.")
    seed: Natural = option(0, "Seed of the weights, the order and the augmentation.")

    def check(self) -> None:
        """Raise RecipeError for settings that contradict each other."""
        low, high = self.scale
        self.require("small_epochs", self.small_epochs <= self.epochs, "epochs at most")
        self.require("warmup_epochs", self.warmup_epochs < self.epochs, "below epochs")
        self.require("scale", low <= high, "the lower one first")
        self.require("scale", self.augment == "affine" or high <= 1, "at most 1, being a share of the area")

    def preprocessing(self) -> dict[str, Any]:
        """Return the overrides of the model's preprocessing, by timm's keys."""
        keys = ("mean", "std", "interpolation", "crop_pct")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
