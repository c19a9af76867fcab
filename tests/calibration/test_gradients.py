from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from exporter.calibration import gradients
from exporter.calibration.attention import propagate
from exporter.calibration.heads import gradient_of_outputs
from exporter.calibration.trace import MlpTrace, in_dtype, trace
from exporter.models.base import MlpParts, PrunableViT
from tests.calibration.samples import VARIANTS, frozen_images, tiny_vit
from tests.calibration.whole_attention import gradient_of_attention
from tests.versions import runs_in_double


def by_autograd(vit: PrunableViT, images: Tensor, target: int) -> list[Tensor]:
    """Gradient of a logit with regard to each block's attention after softmax, by the model's own forward."""
    seen: list[Tensor] = []
    model: Any = vit.model
    handles = [
        block.attn.attn_drop.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
        for block in model.blocks
    ]
    vit.model.requires_grad_(True)
    logits = vit.model(images)
    vit.model.requires_grad_(False)
    for handle in handles:
        handle.remove()
    return list(torch.autograd.grad(logits[:, target].sum(), seen))


def of_attention(vit: PrunableViT, images: Tensor, targets: Tensor) -> list[Tensor]:
    seen = trace(vit, images)
    gradient, found = gradient_of_outputs(vit, seen, targets), []
    for block, here in zip(reversed(vit.blocks), reversed(seen.blocks), strict=True):
        assert block.mlp and block.attention and here.attention
        part, attention, (mlp,) = block.attention, here.attention, here.token_wise
        middle = gradients.to_middle(block.mlp, mlp, gradient)
        context = gradients.to_context(part, attention, middle)
        found.append(gradient_of_attention(attention, context))
        _, _, slopes = propagate(attention, torch.zeros_like(context[:, :, 0, :, 0]), context, context)
        gradient = gradients.to_block_input(part, attention, middle, slopes)
    return found[::-1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gradient_of_attention_is_autograds(variant: str) -> None:
    runs_in_double(variant)
    fused = timm.layers.use_fused_attn()
    timm.layers.set_fused_attn(False)
    try:
        vit = in_dtype(tiny_vit(variant), torch.float64)
    finally:
        timm.layers.set_fused_attn(bool(fused))
    images = frozen_images(2, vit.spec.preprocessing.input_size[1:])
    targets = torch.tensor([[1, 4], [1, 4]])
    for place, target in enumerate((1, 4)):
        expected = by_autograd(vit, images, target)
        for ours, theirs in zip(of_attention(vit, images, targets), expected, strict=True):
            torch.testing.assert_close(ours[:, place], theirs, rtol=1e-10, atol=1e-12)


def test_identity_costs_nothing() -> None:
    gradient = torch.ones(1, 2, 3)
    assert gradient is gradients.pull_back(nn.Identity(), torch.zeros(1, 3), gradient)


def test_an_mlp_of_one_linear_layer_gives_autograds() -> None:
    torch.manual_seed(0)
    linear, norm, nothing = nn.Linear(6, 6).double(), nn.LayerNorm(6).double(), nn.Identity()
    part = MlpParts(norm, nothing, nothing, nothing, linear, linear, nothing)
    tokens, above = torch.randn(2, 5, 6).double(), torch.randn(2, 3, 5, 6).double()
    with torch.no_grad():
        normed, branch = norm(tokens), linear(norm(tokens))
    seen = MlpTrace(tokens, normed, normed, normed, normed, branch, branch)
    leaf = tokens.clone().requires_grad_()
    (expected,) = torch.autograd.grad(leaf + linear(norm(leaf)), leaf, above[:, 0])
    torch.testing.assert_close(gradients.to_middle(part, seen, above)[:, 0], expected)
