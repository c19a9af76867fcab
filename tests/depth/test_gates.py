"""A gate leaves the forward pass as it is; its score gets the gradient of m · unit + (1 − m) · pruned for m."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from exporter.core.base.errors import DepthError
from exporter.core.base.vocabulary import AttentionVariant, UnitType
from exporter.core.vit.protocol import PrunableViT
from exporter.depth.gates import Importance, gated, removable
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan, pieces
from tests.depth.models import seeded_vit
from tests.vits import FAMILIES, cut_vit, make_vit, random_images

ATTENTION, ACTIVATION = UnitType.ATTENTION, UnitType.ACTIVATION
REMOVE, IDENTITY = AttentionVariant.REMOVE, AttentionVariant.IDENTITY


def loss_of(logits: Tensor) -> Tensor:
    return (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum()


def score_gradients(
    vit: PrunableViT, images: Tensor, variant: AttentionVariant = REMOVE
) -> tuple[Tensor, Tensor]:
    with gated(vit, Importance.unknown(vit.spec.depth), variant) as student:
        loss_of(student.to(images.dtype)(images)).backward()
    assert student.attention.grad is not None and student.activation.grad is not None
    return student.attention.grad, student.activation.grad


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_and_weight_gradients_are_the_networks_own(family: str) -> None:
    vit = seeded_vit(family)
    images = random_images(vit, 2)
    weight = vit.model.get_parameter("cls_token").requires_grad_(True)
    plain = vit.model(images)
    (own,) = torch.autograd.grad(loss_of(plain), weight)
    for variant in AttentionVariant:
        with gated(vit, Importance((0.3,) * 4, (-0.2,) * 4), variant) as student:
            output = student(images)
            (gradient,) = torch.autograd.grad(loss_of(output), weight)
        assert torch.equal(output, plain)
        assert torch.equal(gradient, own)
    assert torch.equal(vit.model(images), plain)
    assert not any(module._forward_hooks for module in vit.model.modules())


class Mixed(nn.Module):
    """A unit and what is left of it, mixed by m: the gate itself, without the straight-through form."""

    def __init__(
        self, unit: nn.Module, pruned: Callable[[Tensor], Tensor], m: Tensor
    ) -> None:
        super().__init__()
        self.unit, self.pruned, self.m = unit, pruned, m

    @override
    def forward(self, x: Tensor, **more: Any) -> Tensor:
        return self.m * self.unit(x, **more) + (1 - self.m) * self.pruned(x)


@pytest.mark.parametrize("family", ["deit", "deit3, layer scale", "lvvit"])
@pytest.mark.parametrize(
    ("layer", "variant"), [(1, REMOVE), (3, REMOVE), (3, IDENTITY)]
)
def test_the_gradient_is_that_of_gates_in_the_network(
    family: str, layer: int, variant: AttentionVariant
) -> None:
    vit = seeded_vit(family)
    vit.model.double()
    images = random_images(vit, 2).double()
    scores = score_gradients(vit, images, variant)
    pruned = {REMOVE: torch.zeros_like, IDENTITY: lambda normed: normed}[variant]
    for unit, gradient in zip(UnitType, scores, strict=True):
        m = torch.ones((), dtype=torch.float64, requires_grad=True)
        mixed: Any = seeded_vit(family).model.double()
        block = mixed.blocks[layer - 1]
        if unit == ACTIVATION:
            block.mlp.act = Mixed(block.mlp.act, lambda hidden: hidden, m)
        else:
            block.attn = Mixed(block.attn, pruned, m)
        loss_of(mixed(images)).backward()
        assert m.grad is not None
        assert gradient[layer - 1].item() == pytest.approx(m.grad.item(), rel=1e-9)


def test_nose_leaves_the_tokens_themselves() -> None:
    vit = seeded_vit()
    part = vit.blocks[1].attention
    assert part is not None
    tokens: list[Tensor] = []
    deltas: list[Tensor] = []
    *_, end = pieces(part.out)
    handles = [
        part.norm.register_forward_hook(lambda _, inputs, __: tokens.append(inputs[0])),
        end.register_forward_hook(lambda _, __, output: tokens.append(output)),
        end.register_forward_hook(
            lambda _, __, output: output.register_hook(deltas.append) and None
        ),
    ]
    vit.model.requires_grad_(True)
    attention, _ = score_gradients(vit, random_images(vit, 2), AttentionVariant.NOSE)
    for handle in handles:
        handle.remove()
    block_input, branch = tokens
    assert attention[1].item() == pytest.approx(
        (deltas[0] * (branch - block_input)).sum().item(), rel=1e-4
    )


def test_units_that_can_go() -> None:
    assert removable(make_vit()) == {ATTENTION: (1, 2, 3, 4), ACTIVATION: (1, 2, 3, 4)}
    assert removable(make_vit("dinov2, gated mlp"))[ACTIVATION] == ()
    # Layer 2 has no attention, layer 3 one linear layer in place of an MLP, layer 4 no MLP.
    assert removable(cut_vit()) == {ATTENTION: (1, 3, 5), ACTIVATION: (1, 2, 5)}
    apart = apply_plan(make_vit(), DepthPlan((2,), (3,)), unmerged=True)
    assert removable(apart) == {ATTENTION: (1, 3, 4), ACTIVATION: (1, 2, 4)}


def test_a_branch_that_the_network_hides() -> None:
    vit = make_vit()
    part = vit.blocks[0].attention
    assert part is not None
    object.__setattr__(part, "out", nn.Identity())
    with (
        pytest.raises(
            DepthError, match=r"attention of layer 1 \| got a branch whose last step"
        ),
        gated(vit, Importance.unknown(4)),
    ):
        pass
