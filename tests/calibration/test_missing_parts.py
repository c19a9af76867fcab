"""Relevance and gradients through blocks that lack a part, compared with whole blocks whose branch adds zero."""

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import nn

from exporter.calibration import backward
from exporter.calibration.attention import propagate
from exporter.calibration.calibrate import calibrate
from exporter.calibration.importance import relevance
from exporter.calibration.settings import CalibrationSettings
from exporter.calibration.trace import in_dtype, trace
from exporter.data.images import list_images
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.models.base import BlockParts, PrunableViT
from exporter.vocabulary import AttentionVariant
from tests.calibration.samples import frozen_images, tiny_vit
from tests.calibration.whole_attention import gradient_of_attention
from tests.vits import cut_vit, make_images, make_vit

CLASSES = torch.tensor([[0, 2, 5], [6, 1, 0]])


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


def attentions_of(vit: PrunableViT) -> list[nn.Module]:
    """timm's modules, from a network some of whose blocks are wrapped."""
    parts = [block.attention for block in vit.blocks]
    return [
        module
        for module in vit.model.modules()
        if any(p and getattr(module, "qkv", 0) is p.qkv for p in parts)
    ]


def with_an_identity() -> PrunableViT:
    """Layer 2's attention is the identity, layer 3 has one linear layer in place of an MLP."""
    return apply_plan(make_vit(depth=5), DepthPlan((2,), (3,), AttentionVariant.IDENTITY))


@pytest.mark.parametrize("smaller", [cut_vit, with_an_identity])
def test_gradients_are_autograds_through_a_cut_model(smaller: Callable[[], PrunableViT]) -> None:
    fused = timm.layers.use_fused_attn()
    timm.layers.set_fused_attn(False)
    try:
        vit = in_dtype(smaller(), torch.float64)
    finally:
        timm.layers.set_fused_attn(bool(fused))
    images, seen = frozen_images(1), []
    for module in attentions_of(vit):
        module.get_submodule("attn_drop").register_forward_hook(lambda _m, _i, output: seen.append(output))
    vit.model.requires_grad_(True)
    logits = vit.model(images)
    vit.model.requires_grad_(False)
    expected = torch.autograd.grad(logits[0, 3], seen)
    traced = trace(vit, images)
    torch.testing.assert_close(traced.logits, logits.detach(), rtol=1e-10, atol=1e-12)
    weight: Any = vit.model.get_parameter("head.weight")
    gradient = torch.zeros(1, 1, *traced.normed.shape[1:], dtype=torch.float64)
    gradient[0, 0, 0] = weight[3]
    gradient = backward.pull_back(vit.norm, traced.blocks[-1].output, gradient)
    found = []
    for block, here in zip(reversed(vit.blocks), reversed(traced.blocks), strict=True):
        for part, inside in zip(reversed(block.token_wise), reversed(here.token_wise), strict=True):
            gradient = backward.gradient_to_middle(part, inside, gradient)
        if block.attention and here.attention:
            context = backward.gradient_to_context(block.attention, here.attention, gradient)
            found.append(gradient_of_attention(here.attention, context))
            row = torch.zeros_like(context[:, :, 0, :, 0])
            _, _, slopes = propagate(here.attention, row, context, context)
            gradient = backward.gradient_to_block_input(block.attention, here.attention, gradient, slopes)
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found[::-1], expected, strict=True):
        torch.testing.assert_close(ours[:, 0], theirs, rtol=1e-9, atol=1e-12)


def test_a_cut_model_is_calibrated(tmp_path: Any) -> None:
    vit = cut_vit()
    found = calibrate(vit, list_images(make_images(tmp_path / "images")), CalibrationSettings(gamma=2))
    assert found.inter is not None and found.inter.shape == (5, 16) and (found.inter.sum(1) > 0).all()
    assert found.acs.shape == (5,) and make_vit().spec.depth == 4
