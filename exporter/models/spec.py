"""A model's ModelSpec, read off its adapter: nothing in it has to be counted by hand."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from exporter.errors import ModelError
from exporter.models.base import PrunableViT
from exporter.models.parts import Linear
from exporter.records import ModelSpec, Preprocessing
from exporter.vocabulary import CropMode, Interpolation

__all__ = ["preprocessing_from", "spec_of"]

DEFAULT_ALPHA = 0.15  # STAR's for DeiT


def spec_of(
    vit: PrunableViT,
    name: str,
    *,
    grid: tuple[int, int],
    num_prefix_tokens: int,
    preprocessing: Preprocessing,
    patch_head: Linear | None = None,
    default_alpha: float = DEFAULT_ALPHA,
) -> ModelSpec:
    """The spec of a ViT whose `model`, `blocks`, `classifiers` and `embed` are in place already.

    Args:
        vit: The adapter.
        name: What the artefacts call the model.
        grid: Rows and columns of patches.
        num_prefix_tokens: Tokens before the first patch.
        preprocessing: How an image file becomes the model's input.
        patch_head: A linear layer that reads every surviving patch.
        default_alpha: Weight of the intra-layer score where the user gives none.

    Raises:
        ModelError: The blocks differ in size, or their heads together are not as wide as the tokens.
    """
    blocks = vit.blocks
    dim = blocks[0].proj.out_features
    attention, mlp = ({_weights(*pair) for pair in pairs} for pairs in _linears(vit))
    if len(attention) > 1 or len(mlp) > 1:
        raise ModelError(name, "blocks of different sizes", "blocks that are all alike")
    if {block.num_heads * block.head_dim for block in blocks} != {dim}:
        got = f"{blocks[0].num_heads} heads of {blocks[0].head_dim} channels in {dim}"
        raise ModelError(name, got, "heads that together are as wide as the tokens")
    return ModelSpec(
        name=name,
        depth=len(blocks),
        dim=dim,
        num_heads=blocks[0].num_heads,
        num_classes=vit.classifiers[0].linear.out_features,
        num_prefix_tokens=num_prefix_tokens,
        grid=grid,
        embed_macs=_embedding_macs(vit, preprocessing),
        attention_token_macs=attention.pop(),
        mlp_token_macs=mlp.pop(),
        head_macs=_weights(*(classifier.linear for classifier in vit.classifiers)),
        preprocessing=preprocessing,
        patch_head_macs=0 if patch_head is None else _weights(patch_head),
        default_alpha=default_alpha,
    )


def preprocessing_from(config: Mapping[str, Any], size: tuple[int, int]) -> Preprocessing:
    """The record of a config that has timm's keys.

    Args:
        config: `interpolation`, `mean`, `std`, `crop_pct` and `crop_mode`.
        size: Height and width of the model's input in pixels.

    Raises:
        ModelError: A number is missing or out of its range.
        RecipeError: There is no such interpolation or crop mode.
    """
    try:
        preprocessing = Preprocessing(
            input_size=(3, size[0], size[1]),
            interpolation=Interpolation.named(str(config["interpolation"])),
            mean=_of_channels(config["mean"]),
            std=_of_channels(config["std"]),
            crop_pct=float(config["crop_pct"]),
            crop_mode=CropMode.named(str(config["crop_mode"])),
        )
    except (TypeError, ValueError, OverflowError) as error:
        expected = "numbers, three for mean and for std, e.g. mean=(0.5,0.5,0.5) crop_pct=1.0"
        raise ModelError("preprocessing", str(error), expected) from None
    if not 0 < preprocessing.crop_pct <= 1:
        raise ModelError("preprocessing", f"crop_pct={preprocessing.crop_pct}", "a share in (0, 1]")
    if min(preprocessing.std) <= 0:
        raise ModelError("preprocessing", f"std={preprocessing.std}", "deviations above 0")
    return preprocessing


def _of_channels(values: Any) -> tuple[float, ...]:
    numbers = tuple(float(value) for value in values)
    if len(numbers) != 3:
        raise ValueError(f"{len(numbers)} numbers")
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"{numbers}")
    return numbers


def _linears(vit: PrunableViT) -> tuple[list[tuple[Linear, Linear]], list[tuple[Linear, Linear]]]:
    return [(b.qkv, b.proj) for b in vit.blocks], [(b.fc1, b.fc2) for b in vit.blocks]


def _weights(*linears: Linear) -> int:
    """Multiply-adds for one token: one a weight."""
    return sum(linear.weight.numel() for linear in linears)


@torch.no_grad()
def _embedding_macs(vit: PrunableViT, preprocessing: Preprocessing) -> int:
    """Multiply-adds of convolutions and matrix products, counted while one image is embedded."""
    like = next(vit.model.parameters())
    with FlopCounterMode(display=False) as counter:
        vit.embed(torch.zeros(1, *preprocessing.input_size, dtype=like.dtype, device=like.device))
    return counter.get_total_flops() // 2
