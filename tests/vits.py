"""Small ViTs of every accepted kind, with weights that spread attention, and images to feed them."""

from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn

from exporter.models.base import PrunableViT
from exporter.models.lvvit import LvVit
from exporter.models.registry import adapt

__all__ = ["FAMILIES", "TINY", "make_images", "make_model", "make_tower", "make_vit", "random_images"]

TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "num_heads": 3, "depth": 4, "num_classes": 7}

TINY_LVVIT = {"dim": 48, "num_heads": 3, "depth": 4, "num_classes": 7, "img_size": 64}

# One member of each family: its name, and what differs from TINY, or from TINY_LVVIT.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("vit_tiny_patch16_224", {}),
    "deit": ("deit_tiny_patch16_224", {}),
    "distilled": ("deit_tiny_distilled_patch16_224", {}),
    "deit3, layer scale": ("deit3_small_patch16_224", {}),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 4}),
    "qk norm": ("vit_tiny_patch16_224", {"qk_norm": True}),
    "norm before the blocks": ("vit_tiny_patch16_224", {"pre_norm": True}),
    "wide and low": ("vit_tiny_patch16_224", {"img_size": (16, 48)}),
    "dinov2, gated mlp": ("vit_giant_patch14_reg4_dinov2", {}),
    "clip": ("vit_base_patch32_clip_quickgelu_224", {}),
    "eva, bias apart": ("eva_giant_patch14_clip_224", {}),
    "eva02, joined, rotary": ("eva02_base_patch16_clip_224", {}),
    "rotary a head": ("vit_small_patch16_rope_mixed_224", {}),
    "dinov3": ("vit_small_plus_patch16_dinov3_qkvb", {"global_pool": "token"}),
    "lvvit": ("lvvit", {}),
}


def make_model(family: str = "vit", seed: int = 0, **kwargs: Any) -> nn.Module:
    """A network with seeded weights, large enough that classes and patches differ."""
    name, own = FAMILIES[family]
    torch.manual_seed(seed)
    model: nn.Module
    if name == "lvvit":
        model = LvVit(**{**TINY_LVVIT, **own, **kwargs})
    else:
        model = timm.create_model(name, **{**TINY, **own, **kwargs})
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.15)
    return model.eval()


def make_vit(family: str = "vit", seed: int = 0, **kwargs: Any) -> PrunableViT:
    """The same behind its adapter."""
    return adapt(make_model(family, seed, **kwargs), name="tiny")


def make_tower() -> PrunableViT:
    """A CLIP tower, whose head is the projection to an embedding."""
    tiny = {key: value for key, value in TINY.items() if key != "num_classes"}
    torch.manual_seed(0)
    model = timm.create_model("vit_xsmall_patch16_clip_224", **tiny)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.15)
    return adapt(model, name="tower")


def random_images(vit: PrunableViT, count: int, seed: int = 1) -> Tensor:
    """Preprocessed images of noise."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *vit.spec.preprocessing.input_size, generator=generator)


def make_images(folder: Path, classes: int = 2, each: int = 3, side: int = 40) -> Path:
    """A folder of PNG files, one folder a class."""
    generator = np.random.default_rng(0)
    for label in range(classes):
        place = folder / f"class_{label}"
        place.mkdir(parents=True)
        for index in range(each):
            pixels = generator.integers(0, 256, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{index}.png")
    return folder
