"""Relevance and gradients through blocks that lack a part, compared with whole blocks whose branch adds zero."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from exporter.calibration import cams, gradients
from exporter.calibration.calibrate import calibrate
from exporter.calibration.record import CalibrationSettings
from exporter.calibration.relevance import relevance
from exporter.calibration.trace import MlpTrace, in_dtype, trace
from exporter.data.images import list_images
from exporter.models.base import BlockParts, MlpParts, PrunableViT
from tests.calibration.samples import frozen_images, tiny_vit
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


def naive_single_linear(
    weight: Tensor, tokens: Tensor, normed: Tensor, branch: Tensor, cam: Tensor
) -> Tensor:
    """The published rules for x + W n(x), entry by entry and image by image, with plain loops."""
    result = torch.zeros_like(cam)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in cam.shape[:2])).tolist():
        image, label = place
        relevance_here = cam[image, label]
        ratio = relevance_here / (tokens[image] + branch[image] + 1e-9)
        left, right = tokens[image] * ratio, branch[image] * ratio
        total = left.sum().abs() + right.sum().abs()
        left = left * (left.sum().abs() / total * relevance_here.sum() / left.sum())
        right = right * (right.sum().abs() / total * relevance_here.sum() / right.sum())
        for token in range(cam.shape[2]):
            products = (normed[image, token] * weight).clamp(min=0)  # [out, in]
            shares = products / (products.sum(1, keepdim=True) + 1e-9)
            result[image, label, token] = left[token] + (shares * right[token].unsqueeze(1)).sum(0)
    return result


def test_an_mlp_of_one_linear_layer_follows_the_rules_entry_by_entry() -> None:
    torch.manual_seed(0)
    linear, norm, nothing = nn.Linear(6, 6).double(), nn.LayerNorm(6).double(), nn.Identity()
    part = MlpParts(norm, nothing, nothing, nothing, linear, linear, nothing)
    tokens, cam = torch.randn(2, 5, 6).double(), torch.randn(2, 3, 5, 6).double()
    with torch.no_grad():
        normed, branch = norm(tokens), linear(norm(tokens))
        seen = MlpTrace(tokens, normed, normed, normed, normed, branch, branch)
        expected = naive_single_linear(linear.weight, tokens, normed, branch, cam)
        torch.testing.assert_close(cams.to_middle(part, seen, cam), expected, rtol=1e-6, atol=1e-9)
    leaf = tokens.clone().requires_grad_()
    (expected,) = torch.autograd.grad(leaf + linear(norm(leaf)), leaf, cam[:, 0])
    torch.testing.assert_close(gradients.to_middle(part, seen, cam)[:, 0], expected)


def attentions_of(vit: PrunableViT) -> list[nn.Module]:
    """timm's modules, from a network some of whose blocks are wrapped."""
    parts = [block.attention for block in vit.blocks]
    return [
        module
        for module in vit.model.modules()
        if any(p and getattr(module, "qkv", 0) is p.qkv for p in parts)
    ]


def test_gradients_are_autograds_through_a_cut_model() -> None:
    fused = timm.layers.use_fused_attn()
    timm.layers.set_fused_attn(False)
    try:
        vit = in_dtype(cut_vit(), torch.float64)
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
    gradient = gradients.pull_back(vit.norm, traced.blocks[-1].output, gradient)
    found = []
    for block, here in zip(reversed(vit.blocks), reversed(traced.blocks), strict=True):
        if block.mlp and here.mlp:
            gradient = gradients.to_middle(block.mlp, here.mlp, gradient)
        if block.attention and here.attention:
            context = gradients.to_context(block.attention, here.attention, gradient)
            found.append(gradients.to_attention(here.attention, context))
            gradient = gradients.to_block_input(block.attention, here.attention, gradient, context, found[-1])
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found[::-1], expected, strict=True):
        torch.testing.assert_close(ours[:, 0], theirs, rtol=1e-9, atol=1e-12)


def test_a_cut_model_is_calibrated(tmp_path: Any) -> None:
    vit = cut_vit()
    found = calibrate(vit, list_images(make_images(tmp_path / "images")), CalibrationSettings(gamma=2))
    assert found.inter is not None and found.inter.shape == (5, 16) and (found.inter.sum(1) > 0).all()
    assert found.acs.shape == (5,) and make_vit().spec.depth == 4
