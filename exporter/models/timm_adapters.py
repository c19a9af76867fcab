"""The adapters for timm's VisionTransformer and Eva, two families of many models.

Eva's are EVA, EVA-02, RoPE-ViT, DINOv3 and others whose attention rotates queries and keys. The distilled DeiT is a
VisionTransformer here.
"""

from collections.abc import Mapping
from typing import Any

import torch
from timm.layers import Attention, AttentionRope
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva, EvaAttention, EvaBlock
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from exporter.errors import ModelError
from exporter.models.base import AttentionParts, BlockParts, Classifier, PrunableViT
from exporter.models.parts import JoinedLinear, Linear, Rotary, Scaled, WeightedModule
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

__all__ = ["TimmEva", "TimmViT", "why_not"]


class _Timm(PrunableViT):
    """What timm's networks have in common: the final norm and the head."""

    model: Any

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


class TimmViT(_Timm):
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
        self.blocks = [_vit_parts(block) for block in model.blocks]
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


def why_not(model: VisionTransformer) -> str:
    """Return why a model cannot be pruned, or an empty string."""
    return why_not_blocks(model, _why_not_vit_block)


def _why_not_vit_block(block: Any) -> str:
    if type(block) is not Block:
        return f"the layout {type(block).__name__}, not a pre-norm block of attention and MLP"
    if type(block.attn) is not Attention:
        return f"attention of the kind {type(block.attn).__name__}"
    if getattr(block.attn, "gate", None) is not None:
        return "gated attention"
    return why_not_mlp(block.mlp)


def _vit_parts(block: Any) -> BlockParts:
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


class TimmEva(_Timm):
    """A timm Eva that classifies from its class token or from its pooled patches.

    Survivors keep the rotation of their own positions. The tables of sines and cosines are computed once: learned
    frequencies are not trained further.

    Args:
        model: The ViT, in eval mode.
        name: The model's name in artefacts.
        preprocessing: Overrides of the model's own config, by timm's keys.

    Raises:
        ModelError: It cannot be pruned; the message says why.
    """

    model: Eva

    def __init__(self, model: Eva, name: str, preprocessing: Mapping[str, Any] | None = None) -> None:
        reason = _why_not(model)
        if reason:
            raise ModelError(name, reason, "a ViT whose head and blocks are supported")
        self.model = model
        self.blocks = [
            _eva_parts(block, rotary) for block, rotary in zip(model.blocks, _rotaries(model), strict=True)
        ]
        self.classifiers = classifiers_of(model)
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
        # VisionTransformer's method, which differs in that it makes no rotation table: the blocks have theirs.
        tokens = VisionTransformer._pos_embed(self.model, self.model.patch_embed(images))
        return self.model.norm_pre(tokens)


class BiasedQkv(WeightedModule):
    """EVA's joint projection, whose biases are parameters of the attention; keys have none."""

    def __init__(self, attention: EvaAttention) -> None:
        super().__init__()
        self.attention = attention

    @property
    @override
    def weight(self) -> Tensor:
        return self.attention.qkv.weight

    @override
    def forward(self, tokens: Tensor) -> Tensor:
        bias = torch.cat([self.attention.q_bias, self.attention.k_bias, self.attention.v_bias])
        return F.linear(tokens, self.weight, bias)


def _why_not(model: Eva) -> str:
    return why_not_blocks(model, _why_not_eva_block)


def _why_not_eva_block(block: Any) -> str:
    attention: Any = getattr(block, "attn", None)
    if type(block) is not EvaBlock:
        return f"the layout {type(block).__name__}, not a pre-norm block of attention and MLP"
    if type(attention) not in (EvaAttention, AttentionRope):
        return f"attention of the kind {type(attention).__name__}"
    if getattr(attention, "gate", None) is not None:
        return "gated attention"
    if getattr(attention, "num_kv_groups", 1) > 1:
        return "fewer heads for keys than for queries"
    if getattr(attention, "qkv_bias_separate", False):
        return "a bias that is added after the projection"
    return why_not_mlp(block.mlp)


def _rotaries(model: Eva) -> list[Rotary | None]:
    """Return one rotary per block; None where positions are embedded only with the patches."""
    if model.rope is None:
        return [None] * len(model.blocks)
    if not model.dynamic_img_size and hasattr(model.rope, "feat_shape"):
        table = model.rope.get_embed()
    else:
        table = model.rope.get_embed(shape=list(model.patch_embed.grid_size))
    tables = list(table) if model.rope_mixed else [table] * len(model.blocks)
    return [
        Rotary(each.detach(), model.num_prefix_tokens, rotate_half=getattr(block.attn, "rotate_half", False))
        for each, block in zip(tables, model.blocks, strict=True)
    ]


def _eva_parts(block: Any, rotary: Rotary | None) -> BlockParts:
    attention = block.attn
    gammas = [nn.Identity() if gamma is None else Scaled(gamma) for gamma in (block.gamma_1, block.gamma_2)]
    return BlockParts(
        whole=block,
        attention=AttentionParts(
            norm=block.norm1,
            qkv=_qkv(attention),
            q_norm=attention.q_norm,
            k_norm=attention.k_norm,
            context_norm=attention.norm,
            proj=attention.proj,
            out=nn.Sequential(attention.proj_drop, gammas[0], block.drop_path1),
            num_heads=attention.num_heads,
            head_dim=attention.proj.in_features // attention.num_heads,
            dropout=attention.attn_drop.p,
            rotary=rotary,
        ),
        mlp=mlp_parts(block.norm2, block.mlp, nn.Sequential(gammas[1], block.drop_path2)),
    )


def _qkv(attention: Any) -> Linear:
    if attention.qkv is None:
        return JoinedLinear([attention.q_proj, attention.k_proj, attention.v_proj])
    if getattr(attention, "q_bias", None) is not None:
        return BiasedQkv(attention)
    return attention.qkv
