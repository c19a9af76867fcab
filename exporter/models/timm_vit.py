"""The adapter for timm's VisionTransformer and its distilled DeiT."""

from collections.abc import Mapping
from typing import Any

from timm.layers import Attention
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from typing_extensions import override

from exporter.errors import ModelError
from exporter.models.base import AttentionParts, BlockParts, Classifier, PrunableViT
from exporter.models.spec import spec_of
from exporter.models.timm_parts import (
    classifiers_of,
    mlp_parts,
    outputs_of,
    pooling_of,
    preprocessing_of,
    why_not_blocks,
    why_not_mlp,
)
from exporter.models.weights import weights_sha256

__all__ = ["TimmViT", "why_not"]


class TimmViT(PrunableViT):
    """A timm VisionTransformer that classifies from its class token or from its pooled patches.

    Args:
        model: The ViT, in eval mode.
        name: The model's name in artefacts.
        preprocessing: Overrides of the model's own config, by timm's keys.

    Raises:
        ModelError: It cannot be pruned; the message says why.
    """

    model: VisionTransformer

    def __init__(
        self, model: VisionTransformer, name: str, preprocessing: Mapping[str, Any] | None = None
    ) -> None:
        reason = why_not(model)
        if reason:
            raise ModelError(name, reason, "a ViT whose head and blocks are supported")
        self.model = model
        self.blocks = [_parts(block) for block in model.blocks]
        self.classifiers = classifiers_of(model)
        if self.classifiers and isinstance(model, VisionTransformerDistilled):
            self.classifiers.append(Classifier(1, model.head_dist))
        self.pooling, self.outputs = pooling_of(model), outputs_of(model)
        spec = spec_of(
            self,
            name,
            grid=tuple(model.patch_embed.grid_size),
            num_prefix_tokens=model.num_prefix_tokens,
            preprocessing=preprocessing_of(model, preprocessing or {}),
        )
        super().__init__(model, spec, weights_sha256(model))

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
    def pooled(self, normed: Tensor) -> Tensor:
        return self.model.forward_head(normed, pre_logits=True)

    @override
    def classify(self, normed: Tensor) -> Tensor:
        return self.model.forward_head(normed)

    @override
    def classify_pooled(self, pooled: Tensor) -> Tensor:
        return self.model.head(self.model.head_drop(self.features(pooled)))


def why_not(model: VisionTransformer) -> str:
    """Return why a model cannot be pruned, or an empty string."""
    return why_not_blocks(model, _why_not_block)


def _why_not_block(block: Any) -> str:
    if type(block) is not Block:
        return f"the layout {type(block).__name__}, not a pre-norm block of attention and MLP"
    if type(block.attn) is not Attention:
        return f"attention of the kind {type(block.attn).__name__}"
    if getattr(block.attn, "gate", None) is not None:
        return "gated attention"
    return why_not_mlp(block.mlp)


def _parts(block: Any) -> BlockParts:
    attention = block.attn
    return BlockParts(
        whole=block,
        attention=AttentionParts(
            norm=block.norm1,
            qkv=attention.qkv,
            q_norm=attention.q_norm,
            k_norm=attention.k_norm,
            context_norm=attention.norm,
            proj=attention.proj,
            out=nn.Sequential(attention.proj_drop, block.ls1, block.drop_path1),
            num_heads=attention.num_heads,
            head_dim=attention.head_dim,
            dropout=attention.attn_drop.p,
        ),
        mlp=mlp_parts(block.norm2, block.mlp, nn.Sequential(block.ls2, block.drop_path2)),
    )
