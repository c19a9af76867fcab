"""Attention with its whole matrices [tokens, tokens]: what the package computes tile by tile."""

import torch
from torch import Tensor

from exporter.calibration import backward
from exporter.calibration.attention import propagate
from exporter.calibration.rules import guarded_inverse
from exporter.calibration.trace import AttentionTrace, ModelTrace
from exporter.core.vit.protocol import PrunableViT


def matrices(seen: AttentionTrace) -> tuple[Tensor, Tensor]:
    """The unscaled products of query and key, and attention after its softmax, each [b, h, t, t]."""
    products = seen.query @ seen.key.mT
    return products, (products * seen.query.shape[-1] ** -0.5).softmax(-1)


def product_rule(
    relevance: Tensor, left: Tensor, right: Tensor
) -> tuple[Tensor, Tensor]:
    """Half the relevance of `left @ right` to each factor, in proportion to its terms."""
    ratio = relevance * 0.5 * guarded_inverse(left @ right)
    return (ratio @ right.mT) * left, (left.mT @ ratio) * right


def relevance_of_attention(
    seen: AttentionTrace, context: Tensor
) -> tuple[Tensor, Tensor]:
    """Relevance of attention [b, k, h, t, t] and of values [b, k, h, t, c], from that of the contexts."""
    _, attention = matrices(seen)
    return product_rule(context, attention.unsqueeze(1), seen.value.unsqueeze(1))


def gradient_of_attention(seen: AttentionTrace, context: Tensor) -> Tensor:
    """Gradient of attention after its softmax [b, k, h, t, t], from that of the contexts."""
    return torch.einsum("bkhtc,bhuc->bkhtu", context, seen.value)


def gradients_of_attention(
    vit: PrunableViT, seen: ModelTrace, gradient: Tensor
) -> list[Tensor]:
    """The same of each block that has attention, first to last, from that of the last block's output."""
    found = []
    for block, here in zip(reversed(vit.blocks), reversed(seen.blocks), strict=True):
        for part, inside in zip(
            reversed(block.token_wise), reversed(here.token_wise), strict=True
        ):
            gradient = backward.gradient_to_middle(part, inside, gradient)
        if block.attention and here.attention:
            context = backward.gradient_to_context(
                block.attention, here.attention, gradient
            )
            found.append(gradient_of_attention(here.attention, context))
            row = torch.zeros_like(context[:, :, 0, :, 0])
            _, _, slopes = propagate(here.attention, row, context, context)
            gradient = backward.gradient_to_block_input(
                block.attention, here.attention, gradient, slopes
            )
    return found[::-1]
