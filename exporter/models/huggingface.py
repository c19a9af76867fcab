"""Hugging Face's ViT and DeiT, from a local folder: timm's networks under other names.

`config.json` and the weights are read directly; the transformers library is not needed.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from exporter.errors import CheckpointError, ModelError
from exporter.formats.canonical_json import read_json
from exporter.models.weights import read_state_dict

__all__ = ["architecture_of", "is_folder", "preprocessing_of", "read_weights"]

# Models with a classifier; a teacher adds a second head, which reads the distillation token.
TIMM_NAMES = {
    "ViTForImageClassification": "vit_base_patch16_224",
    "DeiTForImageClassification": "vit_base_patch16_224",
    "DeiTForImageClassificationWithTeacher": "deit_base_distilled_patch16_224",
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
}
RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
FILES = ("model.safetensors", "pytorch_model.bin")

RENAMES = (
    (r"^(vit|deit)\.", ""),
    (r"^embeddings\.cls_token", "cls_token"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^encoder\.layer\.", "blocks."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"^layernorm\.", "norm."),
    (r"^(cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
)
UNUSED = re.compile(r"^pooler\.|^embeddings\.mask_token")


def is_folder(name: str) -> bool:
    """Whether a model's name is a folder with a config in it."""
    return (Path(name) / "config.json").is_file()


def architecture_of(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the timm architecture and the keyword arguments for this model.

    Raises:
        ModelError: The config is not of a ViT or DeiT with a classifier, or needs something timm's networks lack.
    """
    config = _read(folder / "config.json")
    kind = next(iter(config.get("architectures") or ["no architecture"]))
    if kind not in TIMM_NAMES:
        raise ModelError(str(folder), str(kind), f"one of {', '.join(TIMM_NAMES)}")
    act = config.get("hidden_act", "gelu")
    if act not in ACTIVATIONS:
        raise ModelError(str(folder), f"hidden_act {act!r}", f"one of {', '.join(ACTIVATIONS)}")
    dim = config.get("hidden_size", 768)
    kwargs = {
        "img_size": config.get("image_size", 224),
        "patch_size": config.get("patch_size", 16),
        "in_chans": config.get("num_channels", 3),
        "embed_dim": dim,
        "depth": config.get("num_hidden_layers", 12),
        "num_heads": config.get("num_attention_heads", 12),
        "mlp_ratio": config.get("intermediate_size", 3072) / dim,
        "qkv_bias": config.get("qkv_bias", True),
        "norm_layer": partial(nn.LayerNorm, eps=config.get("layer_norm_eps", 1e-12)),
        "act_layer": ACTIVATIONS[act],
        "num_classes": len(config.get("id2label", (0, 1))),
    }
    # Without its teacher's head, a DeiT's distillation token is read only by attention: it is a register.
    return TIMM_NAMES[kind], kwargs | ({"reg_tokens": 1} if kind == "DeiTForImageClassification" else {})


def preprocessing_of(folder: Path) -> dict[str, Any]:
    """Return `preprocessor_config.json` under timm's keys; the processor's own defaults where there is no file."""
    place = folder / "preprocessor_config.json"
    config = _read(place) if place.is_file() else {}
    values = {
        "mean": tuple(config.get("image_mean", (0.5, 0.5, 0.5))),
        "std": tuple(config.get("image_std", (0.5, 0.5, 0.5))),
        "interpolation": RESAMPLING.get(config.get("resample", 2), "bilinear"),
        "crop_mode": "squash",
        "crop_pct": 1.0,
    }
    size, crop = config.get("size", {}), config.get("crop_size")
    resized = _side(size)
    if isinstance(size, dict) and "shortest_edge" in size:
        values["crop_mode"] = "center"
    if config.get("do_center_crop") and crop and resized:
        values["crop_pct"] = _side(crop) / resized
    return values


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights under timm's keys.

    Raises:
        CheckpointError: There is no file of weights, or the file does not hold weights.
    """
    place = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if place is None:
        raise CheckpointError(str(folder), "no weights", " or ".join(FILES))
    return _converted(read_state_dict(place))


def _converted(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    token = "dist_token" if "distillation_classifier.weight" in state else "reg_token"
    converted, apart = {}, {}
    for key, value in state.items():
        name = key
        for pattern, replacement in RENAMES:
            name = re.sub(pattern, replacement, name)
        name = name.replace("embeddings.distillation_token", token)
        if ".attention.attention." in name:
            apart[name] = value
        elif not UNUSED.match(name):
            converted[name] = value
    for name in apart:
        block, query, kind = name.partition(".attention.attention.query.")
        if query:
            names = [f"{block}.attention.attention.{part}.{kind}" for part in ("query", "key", "value")]
            converted[f"{block}.attn.qkv.{kind}"] = torch.cat([apart[part] for part in names])
    return converted


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(str(path), str(error), "a JSON object") from None
    if not isinstance(content, dict):
        raise ModelError(str(path), f"a JSON {type(content).__name__}", "a JSON object")
    return content


def _side(size: Any) -> int:
    """Return the height in pixels of a size in any of its forms; 0 where there is none."""
    if isinstance(size, dict):
        size = size.get("height", size.get("shortest_edge"))
    return 0 if size is None else int(size)
