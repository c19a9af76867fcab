"""The adapter for LV-ViT, and LV-ViT's models by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from typing_extensions import override

from exporter.errors import ModelError
from exporter.models.base import AttentionParts, BlockParts, Classifier, MlpParts, PrunableViT
from exporter.models.lvvit import PATCH_STRIDE, STEM_STRIDE, LvBlock, LvVit
from exporter.models.spec import preprocessing_from, spec_of
from exporter.models.weights import weights_sha256
from exporter.records import Preprocessing

__all__ = ["LVVITS", "LvVitAdapter", "preprocessing_of"]

LVVITS: dict[str, Callable[..., LvVit]] = {
    "lvvit_s": partial(LvVit, dim=384, depth=16, num_heads=6, crop_pct=0.9),
    "lvvit_m": partial(LvVit, dim=512, depth=20, num_heads=8, crop_pct=1.0),
}

IMAGENET = {
    "interpolation": "bicubic",
    "mean": IMAGENET_DEFAULT_MEAN,
    "std": IMAGENET_DEFAULT_STD,
    "crop_mode": "center",
}
DEFAULT_ALPHA = 0.3  # STAR's value for LV-ViT


class LvVitAdapter(PrunableViT):
    """An LV-ViT; when pruned, its auxiliary head takes the largest logit of the remaining patches.

    Relevance starts at the class token's head alone, as in the authors' code.

    Args:
        model: In eval mode.
        name: The model's name in artefacts.
        preprocessing: Overrides of ImageNet's, by timm's keys.

    Raises:
        ModelError: The input is not a whole number of patches.
    """

    model: LvVit

    def __init__(self, model: LvVit, name: str, preprocessing: Mapping[str, Any] | None = None) -> None:
        pixels = STEM_STRIDE * PATCH_STRIDE
        if any(side % pixels for side in model.img_size):
            raise ModelError(
                name, f"an input of {model.img_size} pixels", f"height and width in multiples of {pixels}"
            )
        self.model = model
        self.blocks = [_parts(block) for block in model.blocks]
        self.classifiers = [Classifier(0, model.head)]
        spec = spec_of(
            self,
            name,
            grid=(model.grid_size[0], model.grid_size[1]),
            num_prefix_tokens=model.num_prefix_tokens,
            preprocessing=preprocessing_of(model, preprocessing or {}),
            patch_head=model.aux_head if model.use_aux else None,
            default_alpha=DEFAULT_ALPHA,
        )
        super().__init__(model, spec, weights_sha256(model))

    @override
    def embed(self, images: Tensor) -> Tensor:
        return self.model.embed(images)

    @override
    def norm(self, tokens: Tensor) -> Tensor:
        return self.model.norm(tokens)

    @override
    def classify(self, normed: Tensor) -> Tensor:
        return self.model.classify(normed)


def preprocessing_of(model: LvVit, overrides: Mapping[str, Any]) -> Preprocessing:
    """Return ImageNet's preprocessing at the model's input size.

    Args:
        model: Gives the input size and the crop share.
        overrides: Values that differ, by timm's keys.
    """
    return preprocessing_from({**IMAGENET, "crop_pct": model.crop_pct, **overrides}, model.img_size)


def _parts(block: Any) -> BlockParts:
    if not isinstance(block, LvBlock):
        raise TypeError(f"a {type(block).__name__} among LV-ViT's blocks")
    attention, mlp = block.attn, block.mlp
    return BlockParts(
        whole=block,
        attention=AttentionParts(
            norm=block.norm1,
            qkv=attention.qkv,
            q_norm=nn.Identity(),
            k_norm=nn.Identity(),
            context_norm=nn.Identity(),
            proj=attention.proj,
            out=block.attn_out,
            num_heads=attention.num_heads,
            head_dim=attention.head_dim,
            dropout=0.0,
        ),
        mlp=MlpParts(
            norm=block.norm2,
            fc1=mlp.fc1,
            act=mlp.act,
            hidden_norm=nn.Identity(),
            fc2=mlp.fc2,
            whole=mlp,
            out=block.mlp_out,
        ),
    )
