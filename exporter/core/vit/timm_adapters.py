"""The adapters for timm's VisionTransformer and Eva, two families of many models."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from timm.data import resolve_model_data_config
from timm.layers import (
    Attention,
    AttentionPoolLatent,
    AttentionRope,
    GluMlp,
    Mlp,
    SwiGLU,
)
from timm.layers.patch_dropout import patch_dropout_forward
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva, EvaAttention, EvaBlock
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from exporter.core.base.errors import ModelError
from exporter.core.base.records import Output
from exporter.core.base.tensor_names import EMBEDDING, LOGITS
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit.parts import (
    AttentionPooling,
    Gate,
    JoinedLinear,
    Linear,
    MaxPooling,
    MeanPooling,
    Pooling,
    Rotary,
    Scaled,
    WeightedModule,
    split_head,
)
from exporter.core.vit.protocol import (
    AttentionParts,
    BlockParts,
    Classifier,
    MlpParts,
    PrunableViT,
)
from exporter.core.vit.spec import preprocessing_from, spec_of


def mlp_parts(norm: nn.Module, mlp: Any, out: nn.Module) -> MlpParts:
    """Return the parts of a timm MLP, with its norm and the scale of its branch."""
    if isinstance(mlp, SwiGLU):
        fc1: Linear = JoinedLinear([mlp.fc1_g, mlp.fc1_x])
        act: nn.Module = Gate(mlp.act, gate_last=False)
    elif isinstance(mlp, GluMlp):
        fc1, act = mlp.fc1, Gate(mlp.act, gate_last=mlp.gate_last)
    else:
        fc1, act = mlp.fc1, mlp.act
    return MlpParts(
        norm=norm,
        fc1=fc1,
        act=act,
        hidden_norm=mlp.norm,
        fc2=mlp.fc2,
        whole=mlp,
        out=out,
    )


def why_not_mlp(mlp: Any) -> str:
    """Return why an MLP cannot be split into parts, or an empty string."""
    is_linear = isinstance(getattr(mlp, "fc2", None), nn.Linear)
    if type(mlp) not in (Mlp, GluMlp, SwiGLU) or not is_linear:
        return f"an MLP of the kind {type(mlp).__name__}"
    return ""


def why_not_blocks(
    model: Any, kind: type[nn.Module], attentions: tuple[type[nn.Module], ...]
) -> str:
    """Return why the first unsupported block rules a model out, or an empty string."""
    for index, block in enumerate(model.blocks, start=1):
        reason = _why_not_block(block, kind, attentions)
        if reason:
            return f"block {index} with {reason}"
    return "" if len(model.blocks) else "no blocks"


def _why_not_block(
    block: Any, kind: type[nn.Module], attentions: tuple[type[nn.Module], ...]
) -> str:
    if type(block) is not kind:
        return f"the layout {type(block).__name__}, not a pre-norm block of attention and MLP"
    if type(block.attn) not in attentions:
        return f"attention of the kind {type(block.attn).__name__}"
    if getattr(block.attn, "gate", None) is not None:
        return "gated attention"
    if getattr(block.attn, "num_kv_groups", 1) > 1:
        return "fewer heads for keys than for queries"
    if getattr(block.attn, "qkv_bias_separate", False):
        return "a bias that is added after the projection"
    return why_not_mlp(block.mlp)


def why_not_head(model: Any) -> str:
    """Return why a head cannot be used, or an empty string: it reads the class token, or pools the patches."""
    if model.global_pool == "token":
        if model.cls_token is None:
            return "a head on the class token, and no class token"
        return ""
    attention = getattr(model, "attn_pool", None)
    if attention is None:
        is_known = model.global_pool in ("avg", "max", "avgmax")
    else:
        is_known = _is_plain(attention, model.embed_dim)
    if not is_known:
        return f"pooling {model.global_pool!r}, which is none of avg, max, avgmax and map with one query"
    return ""


def _is_plain(attention: Any, channels: int) -> bool:
    """Whether a pooling by attention has one query, no positions, and gives as many channels as tokens have."""
    if type(attention) is not AttentionPoolLatent or attention.pos_embed is not None:
        return False
    widths = {attention.out_features, attention.kv.in_features, channels}
    return len(widths) == attention.latent_len == 1 and attention.pool == "token"


def pooling_of(model: Any) -> Pooling | None:
    """Return how a model's head pools the patches; None where it reads the class token."""
    if model.global_pool == "token":
        return None
    skipped = 0 if _pools_prefix(model) else model.num_prefix_tokens
    if getattr(model, "attn_pool", None) is not None:
        return AttentionPooling(skipped, model.attn_pool)
    if model.global_pool == "avg":
        return MeanPooling(skipped)
    return MaxPooling(skipped, with_mean=model.global_pool == "avgmax")


def _pools_prefix(model: Any) -> bool:
    """Whether prefix tokens are pooled too: timm's Eva has no switch, and pools them by attention alone."""
    return bool(getattr(model, "pool_include_prefix", model.global_pool == "map"))


def classifiers_of(model: Any, linear: nn.Linear | None) -> list[Classifier]:
    """Return the classifiers on class tokens or on the pooled patches, if the head has a linear layer."""
    if linear is None:
        return []
    classifiers = [Classifier(0 if model.global_pool == "token" else None, linear)]
    if isinstance(model, VisionTransformerDistilled):
        classifiers.append(Classifier(1, model.head_dist))
    return classifiers


def outputs_of(model: Any) -> tuple[Output, ...]:
    """Return logits, or an embedding where there is no head, or it is a tower's projection.

    timm loads the projection of a pretrained CLIP or PE tower as the head, with as many "classes" as the embedding
    has channels and a bias of zeros. The tag of a tower shows whether it was fine-tuned on labels.
    """
    if isinstance(model.head, nn.Identity) or _is_projection(model):
        return (Output(EMBEDDING, OutputKind.EMBEDDING),)
    return (Output(LOGITS, OutputKind.LOGITS),)


def _is_projection(model: Any) -> bool:
    config = getattr(model, "pretrained_cfg", None) or {}
    name = f"{config.get('architecture')}.{config.get('tag')}"
    is_towers = ("clip" in name or "_pe_core_" in name) and "_ft_" not in name
    is_linear = isinstance(model.head, nn.Linear)
    if not is_towers or not is_linear or model.num_classes != config.get("num_classes"):
        return False
    bias = model.head.bias
    return bias is None or bias.is_meta or not bias.any()


class _Timm(PrunableViT):
    """A network of timm's that classifies from its class token or from its pooled patches."""

    model: Any
    block: type[nn.Module]
    attentions: tuple[type[nn.Module], ...]

    def __init__(
        self, model: Any, name: str, preprocessing: Mapping[str, Any] | None = None
    ) -> None:
        reason = why_not_head(model) or why_not_blocks(
            model, self.block, self.attentions
        )
        if reason:
            raise ModelError(name, reason, "a ViT whose head and blocks are supported")
        self.model = model
        self.blocks = self.parts()
        self.before, linear = split_head(model.head, name)
        self.classifiers = classifiers_of(model, linear)
        self.pooling, self.outputs = pooling_of(model), outputs_of(model)
        config = {**resolve_model_data_config(model), **(preprocessing or {})}
        spec = spec_of(
            self,
            name,
            grid=tuple(model.patch_embed.grid_size),
            num_prefix_tokens=model.num_prefix_tokens,
            preprocessing=preprocessing_from(config, model.patch_embed.img_size),
        )
        super().__init__(model, spec)

    @abstractmethod
    def parts(self) -> list[BlockParts]:
        """Split the model's blocks."""

    @abstractmethod
    def placed(self, images: Tensor) -> Tensor:
        """Embed images with their positions, before any patch is dropped out."""

    @override
    def embed(self, images: Tensor) -> Tensor:
        return self.model.norm_pre(self.placed(images))

    @override
    def embed_in_training(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        dropout: Any = self.model.patch_drop
        if not getattr(dropout, "prob", 0.0) or not dropout.training:
            return self.embed(images), None
        tokens, positions = patch_dropout_forward(
            self.placed(images),
            dropout.prob,
            self.model.num_prefix_tokens,
            ordered=True,
            training=True,
        )
        return self.model.norm_pre(tokens), positions

    @override
    def norm(self, tokens: Tensor) -> Tensor:
        return self.model.norm(tokens)

    @override
    def features(self, normed: Tensor) -> Tensor:
        return self.before(self.model.fc_norm(normed))

    @override
    def pooled(self, normed: Tensor) -> Tensor:
        return self.model.forward_head(normed, pre_logits=True)

    @override
    def classify(self, normed: Tensor) -> Tensor:
        return self.model.forward_head(normed)

    @override
    def classify_pooled(self, pooled: Tensor) -> Tensor:
        return self.model.head(self.model.head_drop(self.model.fc_norm(pooled)))


class TimmViT(_Timm):
    """A timm VisionTransformer, the distilled DeiT among them."""

    model: VisionTransformer
    block, attentions = Block, (Attention,)

    @override
    def placed(self, images: Tensor) -> Tensor:
        return self.model._pos_embed(self.model.patch_embed(images))

    @override
    def parts(self) -> list[BlockParts]:
        return [
            parts_of(block, block.attn.qkv, (block.ls1, block.ls2))
            for block in self.model.blocks
        ]


class TimmEva(_Timm):
    """A timm Eva: EVA, EVA-02, RoPE-ViT, DINOv3 and others whose attention rotates queries and keys.

    Survivors keep the rotation of their own positions. The tables of sines and cosines are computed once: learned
    frequencies are not trained further.
    """

    model: Eva
    block, attentions = EvaBlock, (EvaAttention, AttentionRope)

    @override
    def placed(self, images: Tensor) -> Tensor:
        # VisionTransformer's method, which differs in that it makes no rotation table: the blocks have theirs.
        # Without embedded positions it drops out nothing, either, as Eva does in training.
        tokens = VisionTransformer._pos_embed(
            self.model, self.model.patch_embed(images)
        )
        if self.model.training and self.model.pos_embed is None:
            tokens = self.model.pos_drop(tokens)
        return tokens

    @override
    def parts(self) -> list[BlockParts]:
        return [
            parts_of(block, _qkv(block.attn), _scales(block), rotary)
            for block, rotary in zip(
                self.model.blocks, _rotaries(self.model), strict=True
            )
        ]


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
        bias = torch.cat(
            [self.attention.q_bias, self.attention.k_bias, self.attention.v_bias]
        )
        return F.linear(tokens, self.weight, bias)


def _rotaries(model: Eva) -> list[Rotary | None]:
    """Return one rotary per block; None where positions are embedded only with the patches."""
    if model.rope is None:
        return [None] * len(model.blocks)
    shape: list[int] | None = list(model.patch_embed.grid_size)
    if not model.dynamic_img_size and hasattr(model.rope, "feat_shape"):
        shape = None  # made with the model
    table = model.rope.get_embed(shape)
    tables = list(table) if model.rope_mixed else [table] * len(model.blocks)
    return [
        Rotary(
            table.detach(),
            model.num_prefix_tokens,
            rotate_half=getattr(block.attn, "rotate_half", False),
        )
        for table, block in zip(tables, model.blocks, strict=True)
    ]


def _scales(block: Any) -> tuple[nn.Module, nn.Module]:
    return _scale(block, "gamma_1"), _scale(block, "gamma_2")


def _scale(block: Any, name: str) -> nn.Module:
    # A block may scale one of its halves alone.
    return nn.Identity() if getattr(block, name) is None else Scaled(block, name)


def _qkv(attention: Any) -> Linear:
    if attention.qkv is None:
        return JoinedLinear([attention.q_proj, attention.k_proj, attention.v_proj])
    if getattr(attention, "q_bias", None) is not None:
        return BiasedQkv(attention)
    return attention.qkv


def parts_of(
    block: Any,
    qkv: Linear,
    scales: tuple[nn.Module, nn.Module],
    rotary: Rotary | None = None,
) -> BlockParts:
    """Return the parts of a timm block, given its projection and the scales of its branches."""
    attention = block.attn
    return BlockParts(
        whole=block,
        attention=AttentionParts(
            norm=block.norm1,
            qkv=qkv,
            q_norm=attention.q_norm,
            k_norm=attention.k_norm,
            context_norm=attention.norm,
            proj=attention.proj,
            out=nn.Sequential(attention.proj_drop, scales[0], block.drop_path1),
            num_heads=attention.num_heads,
            head_dim=attention.proj.in_features // attention.num_heads,
            dropout=attention.attn_drop.p,
            rotary=rotary,
        ),
        mlp=mlp_parts(
            block.norm2, block.mlp, nn.Sequential(scales[1], block.drop_path2)
        ),
    )
