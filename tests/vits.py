"""Small ViTs of every accepted kind, with weights that spread attention, and images to feed them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models import VisionTransformer
from typing_extensions import override

from exporter.core.vit.lvvit import LvVit
from exporter.core.vit.protocol import BlockParts, MlpParts, PrunableViT
from exporter.core.vit.spec import spec_of, with_outputs
from exporter.models.registry import adapt

# Without the classes, which a checkpoint brings.
TINY_SHAPE = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 48,
    "num_heads": 3,
    "depth": 4,
}
TINY = {**TINY_SHAPE, "num_classes": 7}

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

# Those whose head reads no class token.
POOLED: dict[str, tuple[str, dict[str, Any]]] = {
    "pooled": ("vit_base_patch16_gap_224", {}),
    "pooled, registers": ("vit_medium_patch16_reg4_gap_256", {"global_pool": "avgmax"}),
    "pooled by attention": ("vit_base_patch16_siglip_224", {}),
    "eva02, pooled": ("eva02_tiny_patch14_336", {}),
    "pe, pooled by attention": ("vit_pe_core_tiny_patch16_384", {}),
}


def make_model(family: str = "vit", seed: int = 0, **kwargs: Any) -> nn.Module:
    """A network with seeded weights, large enough that classes and patches differ."""
    name, own = {**FAMILIES, **POOLED}[family]
    torch.manual_seed(seed)
    model: nn.Module
    if name == "lvvit":
        model = LvVit(**{**TINY_LVVIT, **own, **kwargs})
    else:
        model = timm.create_model(name, **{**TINY, **own, **kwargs})
    for place, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.15)
        elif "gamma" in place:
            # As they begin, layer scales leave nothing of the image in the logits.
            nn.init.uniform_(parameter, 0.2, 1.0)
    return model.eval()


def make_vit(family: str = "vit", seed: int = 0, **kwargs: Any) -> PrunableViT:
    """The same behind its adapter."""
    return adapt(make_model(family, seed, **kwargs), name="tiny")


def make_torchvisions() -> VisionTransformer:
    """A small one of torchvision's, of random weights."""
    torch.manual_seed(0)
    model = VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=4,
        num_heads=3,
        hidden_dim=48,
        mlp_dim=96,
        num_classes=7,
    )
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.15)
    return model.eval()


def make_tower() -> PrunableViT:
    """A CLIP tower, whose head is the projection to an embedding."""
    torch.manual_seed(0)
    model = timm.create_model("vit_xsmall_patch16_clip_224", **TINY_SHAPE)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.15)
    return adapt(model, name="tower")


class CutBlock(nn.Module):
    """A block of timm's, of which either branch may be gone; `mlp` may be another module than the block's own."""

    def __init__(self, block: Any, mlp: nn.Module | None, *, attention: bool) -> None:
        super().__init__()
        self.block = block
        self.mlp, self.attention = mlp, attention

    @override
    def forward(self, tokens: Tensor) -> Tensor:
        if self.attention:
            tokens = tokens + self.block.ls1(self.block.attn(self.block.norm1(tokens)))
        if self.mlp is not None:
            tokens = tokens + self.block.ls2(self.mlp(self.block.norm2(tokens)))
        return tokens


# Rates that a `cut_vit` can take: its layer 2 has no class row; layer 4 prunes after an attention without an MLP.
CUT_RATES = {1: 0.8, 3: 0.7, 4: 0.6}


def cut_vit(family: str = "vit") -> PrunableViT:
    """A ViT as depth pruning leaves it: whole, without attention, an MLP of one linear, without MLP, whole."""
    vit = make_vit(family, depth=5)
    model: Any = vit.model
    merged = nn.Linear(vit.spec.dim, vit.spec.dim).requires_grad_(False)
    nn.init.normal_(merged.weight, std=0.15)
    blocks = [replace(block) for block in vit.blocks]
    for layer, mlp, attention in (
        (2, model.blocks[1].mlp, False),
        (3, merged, True),
        (4, None, True),
    ):
        whole = CutBlock(model.blocks[layer - 1], mlp, attention=attention).eval()
        model.blocks[layer - 1] = whole
        parts = blocks[layer - 1]
        own = parts.mlp if mlp is not None else None
        if own is not None and mlp is merged:
            own = MlpParts(norm=own.norm, fc2=merged, whole=merged, out=own.out)
        blocks[layer - 1] = BlockParts(
            whole, parts.attention if attention else None, own
        )
    return _seen_anew(vit, blocks)


def _seen_anew(vit: PrunableViT, blocks: list[BlockParts]) -> PrunableViT:
    vit.blocks, old = blocks, vit.spec
    vit.spec = spec_of(
        vit,
        old.name,
        grid=old.grid,
        num_prefix_tokens=old.num_prefix_tokens,
        preprocessing=old.preprocessing,
    )
    return vit


def with_tokens(vit: PrunableViT) -> PrunableViT:
    """The same, but that it gives its tokens beside what it gives already."""
    return with_outputs(vit, [*(output.name for output in vit.outputs), "tokens"])


def varied_images(vit: PrunableViT, count: int, seed: int = 1) -> Tensor:
    """Noise of different strength, so that images keep different numbers of patches under a-STAR."""
    strength = torch.linspace(0.1, 4.0, count)[:, None, None, None]
    return random_images(vit, count, seed) * strength


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
