"""The MLPs, heads and preprocessing that timm's families share."""

from collections.abc import Callable, Mapping
from typing import Any

from timm.data import resolve_model_data_config
from timm.layers import AttentionPoolLatent, GluMlp, Mlp, SwiGLU
from torch import nn

from exporter.models.base import Classifier, MlpParts
from exporter.models.parts import (
    AttentionPooling,
    Gate,
    JoinedLinear,
    Linear,
    MaxPooling,
    MeanPooling,
    Pooling,
)
from exporter.models.spec import preprocessing_from
from exporter.records import Output, Preprocessing
from exporter.tensor_names import EMBEDDING, LOGITS
from exporter.vocabulary import OutputKind

__all__ = [
    "classifiers_of",
    "mlp_parts",
    "outputs_of",
    "pooling_of",
    "preprocessing_of",
    "why_not_blocks",
    "why_not_head",
    "why_not_mlp",
]


def mlp_parts(norm: nn.Module, mlp: Any, out: nn.Module) -> MlpParts:
    """Return the parts of a timm MLP, with its norm and the scale of its branch."""
    if isinstance(mlp, SwiGLU):
        fc1: Linear = JoinedLinear([mlp.fc1_g, mlp.fc1_x])
        act: nn.Module = Gate(mlp.act, gate_last=False)
    elif isinstance(mlp, GluMlp):
        fc1, act = mlp.fc1, Gate(mlp.act, gate_last=mlp.gate_last)
    else:
        fc1, act = mlp.fc1, mlp.act
    return MlpParts(norm=norm, fc1=fc1, act=act, hidden_norm=mlp.norm, fc2=mlp.fc2, whole=mlp, out=out)


def why_not_mlp(mlp: Any) -> str:
    """Return why an MLP cannot be split into parts, or an empty string."""
    is_linear = isinstance(getattr(mlp, "fc2", None), nn.Linear)
    if type(mlp) not in (Mlp, GluMlp, SwiGLU) or not is_linear:
        return f"an MLP of the kind {type(mlp).__name__}"
    return ""


def why_not_blocks(model: Any, why_not_block: Callable[[Any], str]) -> str:
    """Return why the head or the first unsupported block rules a model out, or an empty string."""
    reason = why_not_head(model)
    if reason:
        return reason
    if len(model.blocks) == 0:
        return "no blocks"
    for index, block in enumerate(model.blocks, start=1):
        reason = why_not_block(block)
        if reason:
            return f"block {index} with {reason}"
    return ""


def why_not_head(model: Any) -> str:
    """Return why a head cannot be used, or an empty string: it reads the class token, or pools the patches."""
    if model.global_pool == "token":
        if model.cls_token is None:
            return "a head on the class token, and no class token"
        return _why_not_kind(model.head)
    attention = getattr(model, "attn_pool", None)
    if attention is None:
        known = model.global_pool in ("avg", "max", "avgmax")
    else:
        known = type(attention) is AttentionPoolLatent and _is_plain(attention, model.embed_dim)
    if not known:
        return f"pooling {model.global_pool!r}, which is none of avg, max, avgmax and map with one query"
    return _why_not_kind(model.head)


def _why_not_kind(head: nn.Module) -> str:
    known = isinstance(head, nn.Linear | nn.Identity)
    return "" if known else f"a head of the kind {type(head).__name__}"


def _is_plain(attention: AttentionPoolLatent, channels: int) -> bool:
    """Whether a pooling by attention has one query, no positions, and gives as many channels as tokens have."""
    plain = attention.latent_len == 1 and attention.pool == "token" and attention.pos_embed is None
    return bool(plain and attention.out_features == channels and attention.kv.in_features == channels)


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


def classifiers_of(model: Any) -> list[Classifier]:
    """Return the classifier on the class token or on the pooled patches, if there is one."""
    if not isinstance(model.head, nn.Linear):
        return []
    return [Classifier(0 if model.global_pool == "token" else None, model.head)]


def outputs_of(model: Any) -> tuple[Output, ...]:
    """Return logits, or an embedding where there is no head, or it is a tower's projection.

    timm loads the projection of a pretrained CLIP or PE tower as the head, with as many "classes" as the embedding
    has channels and a bias of zeros. The tag of a tower shows whether it was fine-tuned on labels.
    """
    if not isinstance(model.head, nn.Linear):
        return (Output(EMBEDDING, OutputKind.EMBEDDING),)
    config = getattr(model, "pretrained_cfg", None) or {}
    name = f"{config.get('architecture')}.{config.get('tag')}"
    of_tower = ("clip" in name or "_pe_core_" in name) and "_ft_" not in name
    tower = of_tower and model.num_classes == config.get("num_classes")
    bias = getattr(model.head, "bias", None)
    if tower and (bias is None or bias.is_meta or not bias.any()):
        return (Output(EMBEDDING, OutputKind.EMBEDDING),)
    return (Output(LOGITS, OutputKind.LOGITS),)


def preprocessing_of(model: Any, overrides: Mapping[str, Any]) -> Preprocessing:
    """Return the model's own preprocessing at its own input size.

    Args:
        model: A timm model with a patch embedding.
        overrides: Values that differ, by timm's keys.
    """
    return preprocessing_from({**resolve_model_data_config(model), **overrides}, model.patch_embed.img_size)
