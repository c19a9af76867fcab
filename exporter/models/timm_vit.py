"""The adapter for timm's VisionTransformer and its distilled DeiT."""

from collections.abc import Sequence
from typing import Any

from timm.data import resolve_model_data_config
from timm.layers import Attention, Mlp
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from typing_extensions import override

from exporter.errors import ModelError
from exporter.models.base import BlockParts, Classifier, PrunableViT
from exporter.models.weights import weights_sha256
from exporter.records import ModelSpec, Preprocessing

__all__ = ["TimmViT", "why_not"]


class TimmViT(PrunableViT):
    """A timm VisionTransformer that classifies from its class token.

    Args:
        model: The ViT, in eval mode.
        name: What the artefacts call it.
        preprocessing: Overrides of the model's own config, by timm's keys.

    Raises:
        ModelError: It cannot be pruned; the message says why.
    """

    model: VisionTransformer

    def __init__(self, model: nn.Module, name: str, preprocessing: dict[str, object] | None = None) -> None:
        reason = why_not(model)
        if reason:
            raise ModelError(name, reason, "a ViT that classifies from a class token")
        super().__init__(model, _spec(model, name, preprocessing or {}), weights_sha256(model))
        self._blocks = [_parts(block) for block in self.model.blocks]

    @property
    @override
    def blocks(self) -> Sequence[BlockParts]:
        return self._blocks

    @property
    @override
    def classifiers(self) -> Sequence[Classifier]:
        if isinstance(self.model, VisionTransformerDistilled):
            return [Classifier(0, self.model.head), Classifier(1, self.model.head_dist)]
        return [Classifier(0, self.model.head)]

    @override
    def embed(self, images: Tensor) -> Tensor:
        tokens = self.model._pos_embed(self.model.patch_embed(images))
        return self.model.norm_pre(self.model.patch_drop(tokens))

    @override
    def norm(self, tokens: Tensor) -> Tensor:
        return self.model.norm(tokens)

    @override
    def features(self, normed: Tensor) -> Tensor:
        return self.model.fc_norm(normed)

    @override
    def classify(self, normed: Tensor) -> Tensor:
        return self.model.forward_head(normed)


def why_not(model: nn.Module) -> str:
    """The reason why a model cannot be pruned, or an empty string."""
    if not isinstance(model, VisionTransformer):
        return f"a {type(model).__name__}, which has no adapter"
    if model.cls_token is None:
        return "no class token: there is no row of attention to score patches by"
    if model.global_pool != "token":
        return f"pooling {model.global_pool!r}: the classifier does not read the class token"
    if not isinstance(model.head, nn.Linear):
        return "no linear classifier (give --num-classes)"
    for index, block in enumerate(model.blocks, start=1):
        reason = _why_not_block(block)
        if reason:
            return f"block {index} with {reason}"
    return ""


def _why_not_block(block: Any) -> str:
    if type(block) is not Block:
        return f"the layout {type(block).__name__}, not a pre-norm block of attention and MLP"
    if type(block.attn) is not Attention:
        return f"attention of the kind {type(block.attn).__name__}"
    if getattr(block.attn, "gate", None) is not None:
        return "gated attention"
    if type(block.mlp) is not Mlp or not isinstance(block.mlp.fc1, nn.Linear):
        return f"an MLP of the kind {type(block.mlp).__name__}"
    return ""


def _parts(block: Any) -> BlockParts:
    attention, mlp = block.attn, block.mlp
    return BlockParts(
        whole=block,
        norm1=block.norm1,
        qkv=attention.qkv,
        q_norm=attention.q_norm,
        k_norm=attention.k_norm,
        context_norm=attention.norm,
        proj=attention.proj,
        attention_out=nn.Sequential(attention.proj_drop, block.ls1, block.drop_path1),
        norm2=block.norm2,
        fc1=mlp.fc1,
        act=nn.Sequential(mlp.act, mlp.drop1),
        hidden_norm=mlp.norm,
        fc2=mlp.fc2,
        mlp=mlp,
        mlp_out=nn.Sequential(block.ls2, block.drop_path2),
        num_heads=attention.num_heads,
        head_dim=attention.head_dim,
        attention_dropout=attention.attn_drop.p,
    )


def _spec(model: Any, name: str, overrides: dict[str, object]) -> ModelSpec:
    block, embed = model.blocks[0], model.patch_embed
    return ModelSpec(
        name=name,
        depth=len(model.blocks),
        dim=model.embed_dim,
        num_heads=block.attn.num_heads,
        mlp_hidden=block.mlp.fc1.out_features,
        num_classes=model.num_classes,
        num_prefix_tokens=model.num_prefix_tokens,
        num_classifiers=2 if isinstance(model, VisionTransformerDistilled) else 1,
        grid=tuple(embed.grid_size),
        patch_size=tuple(embed.patch_size),
        preprocessing=_preprocessing(model, overrides),
    )


def _preprocessing(model: VisionTransformer, overrides: dict[str, object]) -> Preprocessing:
    config = {**resolve_model_data_config(model), **overrides}
    height, width = model.patch_embed.img_size
    return Preprocessing(
        input_size=(3, height, width),
        interpolation=str(config["interpolation"]),
        mean=tuple(float(value) for value in config["mean"]),
        std=tuple(float(value) for value in config["std"]),
        crop_pct=float(config["crop_pct"]),
        crop_mode=str(config["crop_mode"]),
    )
