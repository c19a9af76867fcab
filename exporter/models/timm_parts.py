"""The MLPs, heads and preprocessing that timm's families share."""

from collections.abc import Callable, Mapping
from typing import Any

from timm.data import resolve_model_data_config
from timm.layers import GluMlp, Mlp, SwiGLU
from torch import nn

from exporter.models.base import MlpParts
from exporter.models.parts import Gate, JoinedLinear, Linear
from exporter.models.spec import preprocessing_from
from exporter.records import Output, Preprocessing
from exporter.tensor_names import EMBEDDING, LOGITS
from exporter.vocabulary import OutputKind

__all__ = ["mlp_parts", "outputs_of", "preprocessing_of", "why_not_blocks", "why_not_head", "why_not_mlp"]


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
    """Return why a model does not classify from its class token, or an empty string."""
    if model.cls_token is None:
        return "no class token: there is no row of attention to score patches by"
    if model.global_pool != "token" and not isinstance(model.head, nn.Linear):
        way = "--model-kwargs global_pool=token --num-classes N gives it one on the class token"
        return f"pooling {model.global_pool!r} and no classifier yet: {way}"
    if model.global_pool != "token":
        return f"pooling {model.global_pool!r}: the classifier does not read the class token"
    return ""


def outputs_of(model: Any) -> tuple[Output, ...]:
    """Return logits, or an embedding where the model has no head or that of a pretrained CLIP tower.

    timm loads a tower's projection as the head, with as many "classes" as the embedding has channels and a bias of
    zeros. The tag of a tower shows whether it was fine-tuned on labels.
    """
    if not isinstance(model.head, nn.Linear):
        return (Output(EMBEDDING, OutputKind.EMBEDDING),)
    config = getattr(model, "pretrained_cfg", None) or {}
    name = f"{config.get('architecture')}.{config.get('tag')}"
    tower = "clip" in name and "_ft_" not in name and model.num_classes == config.get("num_classes")
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
