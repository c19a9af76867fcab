"""Relevance through the parts of a block: by the rules entry by entry, and lost nowhere."""

import pytest
import torch
from torch import Tensor, nn

from exporter.calibration import backward, rules
from exporter.calibration.attention import QueryKeyValue, propagate
from exporter.calibration.trace import AttentionTrace, MlpTrace, in_dtype, trace
from exporter.core.base.vocabulary import AttentionVariant
from exporter.core.vit.protocol import AttentionParts, MlpParts
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from tests.calibration.samples import VARIANTS, frozen_images, tiny_vit


def test_an_mlp_of_one_linear_layer_follows_the_rules() -> None:
    torch.manual_seed(0)
    linear, norm = nn.Linear(6, 6).double(), nn.LayerNorm(6).double()
    part = MlpParts(norm=norm, fc2=linear, whole=linear)
    tokens, cam = torch.randn(2, 5, 6).double(), torch.randn(2, 3, 5, 6).double()
    with torch.no_grad():
        normed, branch = norm(tokens), linear(norm(tokens))
    seen = MlpTrace(tokens, normed, normed, normed, normed, branch, branch)
    skip, added = rules.add(cam, tokens[:, None], branch[:, None])
    below = rules.linear(added, normed[:, None], linear.weight)
    expected = rules.clone(skip + below, tokens[:, None])
    torch.testing.assert_close(backward.cam_to_middle(part, seen, cam), expected)


def of_block(variant: str) -> tuple[AttentionParts, AttentionTrace, MlpParts, MlpTrace]:
    """The second block and what it computed."""
    vit = in_dtype(tiny_vit(variant), torch.float64)
    seen = trace(vit, frozen_images(2, vit.spec.preprocessing.input_size[1:])).blocks[1]
    block = vit.blocks[1]
    assert block.attention and block.mlp and seen.attention
    (mlp,) = seen.token_wise
    return block.attention, seen.attention, block.mlp, mlp


def test_a_part_without_linear_layers_keeps_relevance_where_it_is() -> None:
    """x + norm(x): each element's relevance is shared by its two terms, which are functions of that element."""
    vit = in_dtype(
        apply_plan(tiny_vit(), DepthPlan((2,), (), AttentionVariant.IDENTITY)),
        torch.float64,
    )
    block, (seen, _) = vit.blocks[1], trace(vit, frozen_images(2)).blocks[1].token_wise
    assert block.stand_in is not None
    cam = arriving(seen.tokens)
    found = backward.cam_to_middle(block.stand_in, seen, cam)
    torch.testing.assert_close(found.sum((2, 3)), cam.sum((2, 3)), rtol=1e-6, atol=1e-9)
    skip, branch = rules.add(cam, seen.tokens[:, None], seen.branch[:, None])
    torch.testing.assert_close(found, rules.clone(skip + branch, seen.tokens[:, None]))


def arriving(tokens: Tensor, classes: int = 3) -> Tensor:
    """Positive relevance of every token and class, as it comes from above."""
    shape = (tokens.shape[0], classes, *tokens.shape[1:])
    return torch.rand(
        shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )


def total(*cams_: Tensor) -> Tensor:
    """The sum for each image and class."""
    return torch.stack([cam.flatten(2).sum(-1) for cam in cams_]).sum(0)


def shared(seen: AttentionTrace, context: Tensor) -> QueryKeyValue:
    """Relevance of query, key and value, from that of the contexts."""
    return propagate(
        seen,
        torch.zeros_like(context[:, :, 0, :, 0]),
        context,
        torch.zeros_like(context),
    )[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_whole_block_loses_no_relevance(variant: str) -> None:
    """What the rules of sums and linear layers promise; attention gives half to its weights, half to its values."""
    part, attention, mlp, seen = of_block(variant)
    cam = arriving(seen.tokens)
    middle = backward.cam_to_middle(mlp, seen, cam)
    torch.testing.assert_close(total(middle), total(cam), rtol=1e-4, atol=1e-6)
    skip, context = backward.cam_to_context(part, attention, middle)
    torch.testing.assert_close(
        total(skip, context), total(middle), rtol=1e-4, atol=1e-6
    )
    query, key, value = shared(attention, context)
    torch.testing.assert_close(total(query, key), total(value), rtol=1e-4, atol=1e-6)
    below = backward.cam_to_block_input(
        part, attention, skip, QueryKeyValue(query, key, value)
    )
    torch.testing.assert_close(total(below), total(middle), rtol=1e-3, atol=1e-5)


def test_a_gate_is_shared_by_both_halves() -> None:
    _, _, part, seen = of_block("gated mlp")
    cam = arriving(seen.tokens)
    found = backward.cam_to_middle(part, seen, cam)
    _, branch = rules.add(cam, seen.tokens[:, None], seen.branch[:, None])
    assert isinstance(part.fc2, nn.Linear)
    sign = (
        part.out(torch.ones(1, 1, part.fc2.out_features).double()).sign().reshape(-1, 1)
    )
    branch = rules.linear(branch, seen.fc2_input[:, None], part.fc2.weight * sign)
    both = torch.cat([branch, branch], -1) / 2
    assert not isinstance(part.fc1, nn.Identity)
    below = rules.linear(both, seen.normed[:, None], part.fc1.weight)
    skip, _ = rules.add(cam, seen.tokens[:, None], seen.branch[:, None])
    torch.testing.assert_close(found, rules.clone(skip + below, seen.tokens[:, None]))
