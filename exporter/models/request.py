"""A requested ViT: its name, the place of its weights, and differences from the name's defaults."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from exporter.core.base.files import GivenPath
from exporter.core.base.settings import Positive, Settings, option
from exporter.core.base.vocabulary import PROBLEM_TYPES

# timm's keys that a user may override; the input size is set by `model_kwargs`.
PREPROCESS_KEYS = (
    "interpolation",
    "mean",
    "std",
    "crop_pct",
    "crop_mode",
    "crop_rounding",
)
PreprocessKey = Annotated[str, Meta(pattern=rf"\A({'|'.join(PREPROCESS_KEYS)})\Z")]
Overrides = Annotated[
    dict[PreprocessKey, Any],
    Meta(description=f"values of {', '.join(PREPROCESS_KEYS)}"),
]


@dataclass(frozen=True)
class ModelRequest(Settings):
    """A requested ViT.

    `name` is timm's, `lvvit_s` or `lvvit_m`, a bundled model's, or one of Hugging Face's: a folder, or an id on the
    hub (`exporter.models.huggingface.repository`); "" where the checkpoint says it. Text embeddings make a tower a
    classifier (`exporter.models.zero_shot`).
    """

    name: str = option(
        "",
        "A name that `star-export models` lists, or a Hugging Face id or folder.",
        group="model",
        flag="model",
    )
    checkpoint: GivenPath = option(
        None, "Trained weights: safetensors, or a torch file of tensors.", group="model"
    )
    num_classes: Positive | None = option(
        None,
        "Classes of the head; by default those of the checkpoint.",
        group="model",
        flag=False,
    )
    model_kwargs: dict[str, Any] = option(
        {},
        "Keyword arguments of the model, e.g. img_size=32 patch_size=4.",
        group="model",
    )
    preprocess: Overrides = option(
        {}, "Overrides of the model's preprocessing, e.g. crop_pct=1.0.", flag=False
    )
    text_embeddings: GivenPath = option(
        None,
        "Text embeddings and names of classes (.npz), to use an image tower as a zero-shot classifier.",
        flag=False,
    )
    device: str = option("cpu", "PyTorch device, e.g. cpu or cuda.", group="model")
    outputs: tuple[str, ...] = option(
        (),
        "Outputs of the model, e.g. embedding,tokens,layer:-2 (the tokens of the second-to-last block); by default "
        "logits, or the embedding of an image tower.",
        group="model",
    )
    recalibrate: bool = option(
        False,
        "Accept pruning settings other than those that the checkpoint was trained with.",
        flag=False,
    )
    head: str | None = option(
        None,
        "What the numbers of the head are: logits of classes, labels (each a yes above 0), or values of a "
        "regression; by default what the model's config says, else logits.",
        choices=map(str, PROBLEM_TYPES),
        flag=False,
    )
