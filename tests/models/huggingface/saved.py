"""Tiny models of Hugging Face's library with random weights, one of each kind that is converted."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

SHAPE: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "image_size": 32,
    "patch_size": 8,
}
CLASSES = {"num_labels": 7}
DINO = {key: value for key, value in SHAPE.items() if key != "intermediate_size"} | {
    "mlp_ratio": 2
}
TEXT = {
    "hidden_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 40,
}
WORDS = {
    **TEXT,
    "vocab_size": 50,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
LLAMA = {**WORDS, "model_type": "llama", "num_key_value_heads": 2}

# A kind's config, its model, and what differs from SHAPE.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vit": ("ViTConfig", "ViTForImageClassification", CLASSES),
    "no bias, tanh": (
        "ViTConfig",
        "ViTForImageClassification",
        {**CLASSES, "qkv_bias": False, "hidden_act": "gelu_new"},
    ),
    "oblong": (
        "ViTConfig",
        "ViTForImageClassification",
        {**CLASSES, "image_size": [16, 48]},
    ),
    "deit": ("DeiTConfig", "DeiTForImageClassification", CLASSES),
    "distilled": ("DeiTConfig", "DeiTForImageClassificationWithTeacher", CLASSES),
    "clip": ("CLIPVisionConfig", "CLIPVisionModel", {}),
    "clip, projected": (
        "CLIPVisionConfig",
        "CLIPVisionModelWithProjection",
        {"projection_dim": 24},
    ),
    "siglip": ("SiglipVisionConfig", "SiglipVisionModel", {}),
    "siglip, no head": (
        "SiglipVisionConfig",
        "SiglipVisionModel",
        {"vision_use_head": False},
    ),
    "dinov2": ("Dinov2Config", "Dinov2Model", DINO),
    "dinov2, gated": ("Dinov2Config", "Dinov2Model", {**DINO, "use_swiglu_ffn": True}),
    "dinov2, registers": (
        "Dinov2WithRegistersConfig",
        "Dinov2WithRegistersModel",
        {**DINO, "num_register_tokens": 4},
    ),
    "dinov3": ("DINOv3ViTConfig", "DINOv3ViTModel", {"num_register_tokens": 4}),
    "dinov3, gated": (
        "DINOv3ViTConfig",
        "DINOv3ViTModel",
        {"num_register_tokens": 2, "use_gated_mlp": True, "hidden_act": "silu"},
    ),
}
PARENTS: dict[str, dict[str, Any]] = {
    "CLIPModel": {"text_config": WORDS, "vision_config": SHAPE, "projection_dim": 24},
    "SiglipModel": {"text_config": WORDS, "vision_config": SHAPE},
    "LlavaForConditionalGeneration": {
        "text_config": LLAMA,
        "vision_config": {**SHAPE, "model_type": "clip_vision_model"},
    },
}


def make(kind: str) -> Any:
    """A model of the kind, or the parent of this class, with weights that spread attention; in eval mode."""
    torch.manual_seed(0)
    if kind in PARENTS:
        config = getattr(transformers, kind).config_class(**PARENTS[kind])
        model = getattr(transformers, kind)(config)
    else:
        config_name, name, own = KINDS[kind]
        shape = own if own.get("mlp_ratio") else {**SHAPE, **own}
        model = getattr(transformers, name)(getattr(transformers, config_name)(**shape))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    return model.eval()


def save(model: Any, folder: Path) -> Any:
    """Leave the folder that the library leaves, without its progress bars."""
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    return model


@torch.inference_mode()
def answer(model: Any, images: Tensor) -> Tensor:
    """Logits, the projected embedding, or what the library pools."""
    given = model(pixel_values=images)
    for name in ("logits", "image_embeds", "pooler_output"):
        if getattr(given, name, None) is not None:
            return getattr(given, name)
    raise AssertionError(f"{type(model).__name__} gives {list(given)}")
