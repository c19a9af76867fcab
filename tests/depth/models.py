"""ViTs whose norms, biases and scales are seeded too: what a merge forgets changes their logits."""

from typing import Any

import torch
from torch import nn

from exporter.core.vit.protocol import PrunableViT
from exporter.models.registry import adapt
from tests.vits import make_model

# DeiT with and without LayerScale, LV-ViT, and EVA with scales that are parameters of the block.
MERGED_FAMILIES = (
    "deit",
    "deit3, layer scale",
    "distilled",
    "lvvit",
    "eva, bias apart",
    "rotary a head",
)


def seeded_vit(family: str = "deit", **kwargs: Any) -> PrunableViT:
    """A tiny ViT of four blocks."""
    model = make_model(family, **kwargs)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for module in model.modules():
            scales = [
                getattr(module, name, None) for name in ("gamma", "gamma_1", "gamma_2")
            ]
            scales += (
                [module.weight, module.bias] if isinstance(module, nn.LayerNorm) else []
            )
            scales += [module.bias] if isinstance(module, nn.Linear) else []
            for scale in scales:
                if isinstance(scale, nn.Parameter):
                    own = 1.0 if scale is not getattr(module, "bias", None) else 0.0
                    scale.copy_(
                        own + 0.4 * torch.randn(scale.shape, generator=generator)
                    )
    return adapt(model, name="seeded")
