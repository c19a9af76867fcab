"""The kinds of models that are converted, by their class in the library: timm's network, and how it differs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from timm.data import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    OPENAI_CLIP_MEAN,
    OPENAI_CLIP_STD,
)

from exporter.errors import ModelError
from exporter.models.timm_arguments import SWIGLU

Config: TypeAlias = Mapping[str, Any]

# Keys of a config that hold counts, and other numbers.
COUNTS = (
    *(
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "patch_size",
    ),
    *("num_channels", "projection_dim"),
)
NUMBERS = ("layer_norm_eps", "mlp_ratio", "rope_theta")
LARGEST = 2**31 - 1
# Models of images and text → their vision tower.
PAIRS = {"CLIPModel": "CLIPVisionModelWithProjection", "SiglipModel": "SiglipVisionModel"}


def class_named(config: Config) -> str:
    """Return the first of the library's classes that a config names, "" if it names none."""
    told = config.get("architectures")
    return str(told[0]) if isinstance(told, list) and told else ""


def vision_config(config: Config) -> dict[str, Any]:
    """Return the config of a vision tower: the whole one, or the one within that of a model of images and text."""
    if "vision_config" not in config:
        return dict(config)
    inner = config["vision_config"]
    if not isinstance(inner, Mapping):
        return {}
    # A pair of towers projects both to one size, which is the pair's.
    shared = {key: config[key] for key in ("projection_dim",) if key in config}
    paired = PAIRS.get(class_named(config))
    return {**inner, **shared, **({"architectures": [paired]} if paired else {})}


def check_types(config: Config, source: str) -> None:
    """Check the types of what is computed with: the library writes them, but anyone may edit them."""
    for key in COUNTS:
        value = config.get(key, 1)
        if type(value) is not int or not 1 <= value <= LARGEST:
            raise ModelError(
                source, f"{key} {_short(value)}", f"an integer from 1 to {LARGEST}"
            )
    sides = config.get("image_size", 1)
    sides = sides if isinstance(sides, list | tuple) and len(sides) == 2 else [sides]
    if not all(type(side) is int and 1 <= side <= LARGEST for side in sides):
        raise ModelError(
            source, f"image_size {_short(config['image_size'])}", "one or two integers above 0"
        )
    for key in NUMBERS:
        value = config.get(key, 1)
        if type(value) not in (int, float) or not 0 < value <= LARGEST:
            raise ModelError(
                source, f"{key} {_short(value)}", f"a number above 0, at most {LARGEST}"
            )
    if not isinstance(config.get("hidden_act", ""), str) or not isinstance(
        config.get("id2label", {}), Mapping
    ):
        raise ModelError(
            source, "a config with values of other types", "the one that the library wrote"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:30]}… ({len(text)} characters)"


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
DINO = {"mean": IMAGENET_DEFAULT_MEAN, "std": IMAGENET_DEFAULT_STD, "interpolation": "bicubic"}


@dataclass(frozen=True)
class Kind:
    """A kind of model: timm's network for it, and the keyword arguments for a config.

    `preprocessing` is the usual one of such models, `processor` the image processor that the library chooses for
    them (`exporter.models.huggingface.preprocessing`).
    """

    architecture: str
    kwargs: Callable[[Config], dict[str, Any]]
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    processor: str = "ViT"


def class_of(config: Config) -> str:
    """Return the library's class of a vision tower's config."""
    return class_named(config) or TOWERS.get(
        str(config.get("model_type") or ""), "no architecture"
    )


def kind_of(config: Config, source: str) -> Kind:
    """Return the kind of a vision tower's config."""
    family, told = str(config.get("model_type") or ""), class_of(config)
    reason = next((why for start, why in REFUSED.items() if family.startswith(start)), "")
    if reason:
        raise ModelError(
            source, f"a tower of the kind {family}: {reason}", "blocks on one grid of patches"
        )
    if told not in KINDS:
        raise ModelError(source, told, f"one of {', '.join(KINDS)}")
    return KINDS[told]


def network_of(config: Config, source: str) -> tuple[str, dict[str, Any]]:
    """Return timm's architecture and its keyword arguments for a vision tower's config."""
    check_types(config, source)
    kind, act = kind_of(config, source), config.get("hidden_act", "gelu")
    if act not in ACTIVATIONS:
        raise ModelError(source, f"hidden_act {act!r}", f"one of {', '.join(ACTIVATIONS)}")
    kwargs = {**_shape(config), **kind.kwargs(config)}
    return kind.architecture, {
        name: value for name, value in kwargs.items() if value is not None
    }


def _shape(config: Config) -> dict[str, Any]:
    dim = config.get("hidden_size", 768)
    hidden = config.get("intermediate_size", round(dim * config.get("mlp_ratio", 4)))
    return {
        "img_size": config.get("image_size", 224),
        "patch_size": config.get("patch_size", 16),
        "in_chans": config.get("num_channels", 3),
        "embed_dim": dim,
        "depth": config.get("num_hidden_layers", 12),
        "num_heads": config.get("num_attention_heads", 12),
        "mlp_ratio": _ratio(hidden, dim),
        "norm_eps": config.get("layer_norm_eps", 1e-5),
        "act_layer": ACTIVATIONS[config.get("hidden_act", "gelu")],
        "num_classes": 0,
    }


def _ratio(hidden: int, dim: int) -> float:
    """Return a ratio that gives the size again when timm rounds the product down."""
    return (hidden + 0.25) / dim


def _classifier(config: Config) -> dict[str, Any]:
    return {
        "qkv_bias": config.get("qkv_bias", True),
        "norm_eps": config.get("layer_norm_eps", 1e-12),
        "num_classes": len(config.get("id2label", (0, 1))),
    }


def _register(config: Config) -> dict[str, Any]:
    # Without its teacher's head, a DeiT's distillation token is read only by attention: it is a register.
    return {**_classifier(config), "reg_tokens": 1}


def _clip(config: Config) -> dict[str, Any]:
    # The library leaves out what has its default value.
    usual = {"patch_size": 32, "hidden_act": "quick_gelu", **config}
    return {"patch_size": usual["patch_size"], "act_layer": ACTIVATIONS[usual["hidden_act"]]}


def _projected(config: Config) -> dict[str, Any]:
    channels = config.get("projection_dim", 512)
    # A head of the size of the pretrained projection is what tells that it is one.
    return {
        **_clip(config),
        "num_classes": channels,
        "pretrained_cfg_overlay": {"num_classes": channels},
    }


def _siglip(config: Config) -> dict[str, Any]:
    usual = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, **config}
    kwargs: dict[str, Any] = {
        "norm_eps": usual["layer_norm_eps"],
        "act_layer": ACTIVATIONS[usual["hidden_act"]],
    }
    # The towers of some parents have no head: only their tokens are read.
    headless = {"global_pool": "avg", "fc_norm": False}
    return kwargs if config.get("vision_use_head", True) else {**kwargs, **headless}


def _dinov2(config: Config) -> dict[str, Any]:
    dim = config.get("hidden_size", 768)
    kwargs: dict[str, Any] = {
        "patch_size": config.get("patch_size", 14),
        "qkv_bias": config.get("qkv_bias", True),
        "norm_eps": config.get("layer_norm_eps", 1e-6),
        "init_values": config.get("layerscale_value", 1.0),
    }
    if config.get("use_swiglu_ffn"):
        # The library rounds two thirds of the MLP up to a multiple of 8.
        each = (int(int(dim * config.get("mlp_ratio", 4)) * 2 / 3) + 7) // 8 * 8
        kwargs |= {"mlp_layer": SWIGLU, "act_layer": "silu", "mlp_ratio": _ratio(2 * each, dim)}
    return kwargs


def _registers(config: Config) -> dict[str, Any]:
    count = config.get("num_register_tokens", 4)
    return {**_dinov2(config), "reg_tokens": count, "no_embed_class": True}


def _dinov3(config: Config) -> dict[str, Any]:
    gated = config.get("use_gated_mlp", False)
    act, only = config.get("hidden_act", "gelu"), "silu" if gated else "gelu"
    if act != only:
        raise ModelError("hidden_act", repr(act), f"{only}, the one that timm's Eva has")
    kwargs: dict[str, Any] = {
        "act_layer": None,  # Eva takes none
        "global_pool": "token",
        "num_reg_tokens": config.get("num_register_tokens", 0),
        "rope_temperature": config.get("rope_theta", 100.0),
        "init_values": config.get("layerscale_value", 1.0),
    }
    if gated:
        kwargs |= {"swiglu_mlp": True, "swiglu_align_to": 0}
    return kwargs


KINDS: Mapping[str, Kind] = {
    "ViTForImageClassification": Kind("vit_base_patch16_224", _classifier),
    "DeiTForImageClassification": Kind("vit_base_patch16_224", _register, processor="DeiT"),
    "DeiTForImageClassificationWithTeacher": Kind(
        "deit_base_distilled_patch16_224", _classifier, processor="DeiT"
    ),
    "CLIPVisionModel": Kind("vit_base_patch32_clip_224.openai", _clip, CLIP, "CLIP"),
    "CLIPVisionModelWithProjection": Kind(
        "vit_base_patch32_clip_224.openai", _projected, CLIP, "CLIP"
    ),
    "SiglipVisionModel": Kind(
        "vit_base_patch16_siglip_224", _siglip, {"interpolation": "bicubic"}, "Siglip"
    ),
    "Dinov2Model": Kind("vit_small_patch14_dinov2", _dinov2, DINO, "Bit"),
    "Dinov2WithRegistersModel": Kind("vit_small_patch14_reg4_dinov2", _registers, DINO, "Bit"),
    "DINOv3ViTModel": Kind("vit_small_patch16_dinov3_qkvb", _dinov3, DINO, "DINOv3ViT"),
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
