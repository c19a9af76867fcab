"""The adapter for torchvision's ViT: the shortest one, and the example for adapters of other families."""

from collections.abc import Mapping
from typing import Any

import torch
import torchvision
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from torchvision.models import VisionTransformer
from typing_extensions import override

from exporter.core.base.records import Output
from exporter.core.base.tensor_names import EMBEDDING
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit.parts import split_head
from exporter.core.vit.protocol import (
    AttentionParts,
    BlockParts,
    Classifier,
    MlpParts,
    PrunableViT,
)
from exporter.core.vit.spec import crop_share, preprocessing_from, spec_of

# That of most of torchvision's weights: an image of 224 pixels is cut from one of 256.
PREPROCESSING = {
    "interpolation": "bilinear",
    "mean": IMAGENET_DEFAULT_MEAN,
    "std": IMAGENET_DEFAULT_STD,
    "crop_pct": 0.875,
    "crop_mode": "center",
}


class TorchvisionViT(PrunableViT):
    """A torchvision VisionTransformer; overrides are of the preprocessing of most of its weights."""

    model: Any

    def __init__(
        self,
        model: VisionTransformer,
        name: str,
        preprocessing: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.blocks = [_parts(block) for block in model.encoder.layers]
        self.before, last = split_head(model.heads, name)
        self.classifiers = [] if last is None else [Classifier(token=0, linear=last)]
        if last is None:
            self.outputs = (Output(EMBEDDING, OutputKind.EMBEDDING),)
        side = model.image_size // model.patch_size
        config = {**PREPROCESSING, **(preprocessing or {})}
        spec = spec_of(
            self,
            name,
            grid=(side, side),
            num_prefix_tokens=1,
            preprocessing=preprocessing_from(
                config, (model.image_size, model.image_size)
            ),
        )
        super().__init__(model, spec)

    @override
    def embed(self, images: Tensor) -> Tensor:
        patches = self.model._process_input(images)
        class_tokens = self.model.class_token.expand(images.shape[0], -1, -1)
        tokens = torch.cat([class_tokens, patches], dim=1)
        return self.model.encoder.dropout(tokens + self.model.encoder.pos_embedding)

    @override
    def norm(self, tokens: Tensor) -> Tensor:
        return self.model.encoder.ln(tokens)

    @override
    def features(self, normed: Tensor) -> Tensor:
        return self.before(normed)

    @override
    def classify(self, normed: Tensor) -> Tensor:
        return self.model.heads(normed[:, 0])


def of_weights(name: str) -> tuple[dict[str, Any], dict[str, int], tuple[str, ...]]:
    """Return what the default weights of a name say: preprocessing, network and class names.

    The preprocessing is by timm's keys, the network's argument is its `image_size`, and the names are in the order
    of the logits. All are empty for other names than those of torchvision's ViTs.
    """
    if name not in torchvision.models.list_models(include="vit_*"):
        return {}, {}, ()
    weights = torchvision.models.get_model_weights(name).DEFAULT
    transforms = weights.transforms()
    (resized,), (side,) = transforms.resize_size, transforms.crop_size
    preprocessing = {
        "interpolation": transforms.interpolation.value,
        "mean": tuple(transforms.mean),
        "std": tuple(transforms.std),
        "crop_pct": crop_share((side, side), (resized, resized)),
        "crop_mode": "center",
    }
    return preprocessing, {"image_size": side}, tuple(weights.meta["categories"])


def _parts(block: Any) -> BlockParts:
    attention, mlp = block.self_attention, block.mlp
    qkv = nn.Linear(attention.embed_dim, 3 * attention.embed_dim)
    qkv.weight, qkv.bias = attention.in_proj_weight, attention.in_proj_bias
    return BlockParts(
        whole=block,
        attention=AttentionParts(
            norm=block.ln_1,
            qkv=qkv,
            proj=attention.out_proj,
            out=block.dropout,
            num_heads=attention.num_heads,
            head_dim=attention.head_dim,
            dropout=attention.dropout,
        ),
        mlp=MlpParts(norm=block.ln_2, fc1=mlp[0], act=mlp[1], fc2=mlp[3], whole=mlp),
    )
