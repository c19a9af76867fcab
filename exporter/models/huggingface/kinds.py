"""The kinds of models that are converted, by their class in the library: timm's network, and how it differs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from timm.data import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    OPENAI_CLIP_MEAN,
    OPENAI_CLIP_STD,
)

from exporter.core.base.errors import ModelError
from exporter.core.base.vocabulary import PROBLEM_TYPES, OutputKind
from exporter.models.timm_arguments import SWIGLU

# Models of images and text → their vision tower.
PAIRS = {
    "CLIPModel": "CLIPVisionModelWithProjection",
    "SiglipModel": "SiglipVisionModel",
}

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
}
CLIP = {
    "mean": OPENAI_CLIP_MEAN,
    "std": OPENAI_CLIP_STD,
    "interpolation": "bicubic",
    "crop_mode": "center",
    "crop_rounding": "down",
}
DINO = {
    "mean": IMAGENET_DEFAULT_MEAN,
    "std": IMAGENET_DEFAULT_STD,
    "interpolation": "bicubic",
}


@dataclass(frozen=True)
class Kind:
    """A kind of model: timm's network for it, and the keyword arguments that its config adds to those of all.

    `preprocessing` is what differs where no processor comes with the weights.
    """

    architecture: str
    kwargs: Callable[[Any], dict[str, Any]]
    preprocessing: Mapping[str, Any] = field(default_factory=dict)


def tower_config(config: Any) -> Any:
    """Return the library's config of a vision tower: the config itself, or the one within a pair's or parent's."""
    tower = getattr(config, "vision_config", None)
    if tower is None:
        return config
    pair = (config.architectures or [""])[0]
    if pair in PAIRS:
        tower.architectures = [PAIRS[pair]]
    if hasattr(config, "projection_dim"):
        # both towers are projected to one size
        tower.projection_dim = config.projection_dim
    return tower


def class_of(config: Any) -> str:
    """Return the library's class of a vision tower's config."""
    names = config.architectures or [TOWERS.get(config.model_type, "no architecture")]
    return str(names[0])


def head_of(config: Any) -> OutputKind:
    """Return what the numbers of a classifier's head are by its config; without a word, logits of classes.

    The config of a tower may still have the word of the classifier that it was taken from.
    """
    kinds = {problem: kind for kind, problem in PROBLEM_TYPES.items()}
    has_head = "ForImageClassification" in class_of(config)
    problem = getattr(config, "problem_type", None) if has_head else None
    return kinds.get(str(problem), OutputKind.LOGITS)


def kind_of(config: Any, source: str) -> Kind:
    """Return the kind of a vision tower's config; `source` is named in errors."""
    family, name = str(config.model_type), class_of(config)
    for beginning, reason in REFUSED.items():
        if family.startswith(beginning):
            got = f"a tower of the kind {family}: {reason}"
            raise ModelError(source, got, "blocks on one grid of patches")
    if name not in KINDS:
        raise ModelError(source, name, f"one of {', '.join(KINDS)}")
    return KINDS[name]


def network_of(config: Any, source: str) -> tuple[str, dict[str, Any]]:
    """Return timm's architecture and its keyword arguments for a vision tower's config."""
    kind = kind_of(config, source)
    if config.hidden_act not in ACTIVATIONS:
        expected = f"one of {', '.join(ACTIVATIONS)}"
        raise ModelError(source, f"hidden_act {config.hidden_act!r}", expected)
    kwargs = {**_shape(config), **kind.kwargs(config)}
    return kind.architecture, {
        name: value for name, value in kwargs.items() if value is not None
    }


def _shape(config: Any) -> dict[str, Any]:
    dim = config.hidden_size
    # DINOv2 has a ratio alone.
    hidden = getattr(config, "intermediate_size", None) or round(dim * config.mlp_ratio)
    return {
        "img_size": config.image_size,
        "patch_size": config.patch_size,
        "in_chans": config.num_channels,
        "embed_dim": dim,
        "depth": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "mlp_ratio": _ratio(hidden, dim),
        "norm_eps": config.layer_norm_eps,
        "act_layer": ACTIVATIONS[config.hidden_act],
        "num_classes": 0,
    }


def _ratio(hidden: int, dim: int) -> float:
    """Return a ratio that gives the size again when timm rounds the product down."""
    return (hidden + 0.25) / dim


def _classifier(config: Any) -> dict[str, Any]:
    return {"qkv_bias": config.qkv_bias, "num_classes": config.num_labels}


def _register(config: Any) -> dict[str, Any]:
    # Without its teacher's head, a DeiT's distillation token is read only by attention: it is a register.
    return {**_classifier(config), "reg_tokens": 1}


def _projected(config: Any) -> dict[str, Any]:
    channels = config.projection_dim
    # A head of the size of the pretrained projection is what tells that it is one.
    return {
        "num_classes": channels,
        "pretrained_cfg_overlay": {"num_classes": channels},
    }


def _siglip(config: Any) -> dict[str, Any]:
    # The towers of some parents have no head: only their tokens are read.
    if getattr(config, "vision_use_head", True):
        return {}
    return {"global_pool": "avg", "fc_norm": False}


def _dinov2(config: Any) -> dict[str, Any]:
    kwargs: dict[str, Any] = {
        "qkv_bias": config.qkv_bias,
        "init_values": config.layerscale_value,
    }
    if config.use_swiglu_ffn:
        # The library rounds two thirds of the MLP up to a multiple of 8.
        dim = config.hidden_size
        half = (int(int(dim * config.mlp_ratio) * 2 / 3) + 7) // 8 * 8
        kwargs |= {
            "mlp_layer": SWIGLU,
            "act_layer": "silu",
            "mlp_ratio": _ratio(2 * half, dim),
        }
    return kwargs


def _registers(config: Any) -> dict[str, Any]:
    registers = config.num_register_tokens
    return {**_dinov2(config), "reg_tokens": registers, "no_embed_class": True}


def _dinov3(config: Any) -> dict[str, Any]:
    is_gated = config.use_gated_mlp
    activation = "silu" if is_gated else "gelu"
    if config.hidden_act != activation:
        expected = f"{activation}, the one that timm's Eva has"
        raise ModelError("hidden_act", repr(config.hidden_act), expected)
    kwargs: dict[str, Any] = {
        "act_layer": None,  # Eva takes none
        "global_pool": "token",
        "num_reg_tokens": config.num_register_tokens,
        "rope_temperature": config.rope_theta,
        "init_values": config.layerscale_value,
    }
    if is_gated:
        kwargs |= {"swiglu_mlp": True, "swiglu_align_to": 0}
    return kwargs


KINDS: Mapping[str, Kind] = {
    "ViTForImageClassification": Kind("vit_base_patch16_224", _classifier),
    "DeiTForImageClassification": Kind("vit_base_patch16_224", _register),
    "DeiTForImageClassificationWithTeacher": Kind(
        "deit_base_distilled_patch16_224", _classifier
    ),
    "CLIPVisionModel": Kind("vit_base_patch32_clip_224.openai", lambda _: {}, CLIP),
    "CLIPVisionModelWithProjection": Kind(
        "vit_base_patch32_clip_224.openai", _projected, CLIP
    ),
    "SiglipVisionModel": Kind(
        "vit_base_patch16_siglip_224", _siglip, {"interpolation": "bicubic"}
    ),
    "Dinov2Model": Kind("vit_small_patch14_dinov2", _dinov2, DINO),
    "Dinov2WithRegistersModel": Kind("vit_small_patch14_reg4_dinov2", _registers, DINO),
    "DINOv3ViTModel": Kind("vit_small_patch16_dinov3_qkvb", _dinov3, DINO),
}
# The towers that a parent's config names by their type alone.
TOWERS = {
    "clip_vision_model": "CLIPVisionModel",
    "siglip_vision_model": "SiglipVisionModel",
    "dinov2": "Dinov2Model",
    "dinov2_with_registers": "Dinov2WithRegistersModel",
    "dinov3_vit": "DINOv3ViTModel",
}
# Types of models that are no row of tokens from the first block to the last, by how they start.
_STAGES = "it attends in windows and merges patches from stage to stage"
REFUSED = {
    "qwen": "it merges neighbouring patches, on grids that follow the image",
    "glm": "it merges neighbouring patches, on grids that follow the image",
    "swin": _STAGES,
    "donut": _STAGES,
    "hiera": _STAGES,
    "maxvit": _STAGES,
    "pvt": _STAGES,
    "siglip2": "its grid follows the image",
    "pixtral": "its grid follows the image",
}
