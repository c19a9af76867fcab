"""Relevance and gradients through blocks that lack a part, compared with whole blocks whose branch adds zero."""

from typing import Any

import pytest
import torch
from torch import nn

from exporter.calibration.trace import in_dtype
from exporter.core.vit.protocol import BlockParts, PrunableViT
from tests.calibration.samples import CLASSES, frozen_images, relevance, tiny_vit


def nothing_added(linear: nn.Linear) -> None:
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)


def without(vit: PrunableViT, layer: int, part: str) -> PrunableViT:
    """The part seen as missing; the network still has it, and adds zero by it."""
    blocks = list(vit.blocks)
    whole = blocks[layer - 1]
    parts = {"attention": whole.attention, "mlp": whole.mlp, part: None}
    blocks[layer - 1] = BlockParts(whole.whole, **parts)  # type: ignore[arg-type]
    vit.blocks = blocks
    return vit


@pytest.mark.parametrize("part", ["attention", "mlp"])
@pytest.mark.parametrize("layer", [1, 2, 3])
def test_a_missing_part_is_one_that_adds_zero(part: str, layer: int) -> None:
    vit = in_dtype(tiny_vit(), torch.float64)
    block: Any = vit.blocks[layer - 1]
    nothing_added(block.attention.proj if part == "attention" else block.mlp.fc2)
    expected = relevance(vit, frozen_images(2), CLASSES)
    got = relevance(without(vit, layer, part), frozen_images(2), CLASSES)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-12)
    if part == "attention" and layer < 3:
        assert torch.equal(got[:, :, layer - 1], got[:, :, layer])
