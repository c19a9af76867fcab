"""The parts of families, and heads that pool."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.layers import AttentionPoolLatent
from timm.models.eva import Eva
from torch import nn

from exporter.models.base import PrunableViT, attention_half, mlp_half, whole_block
from exporter.models.parts import (
    AttentionPooling,
    Divided,
    Gate,
    JoinedLinear,
    MaxPooling,
    MeanPooling,
    Pooling,
    Rotary,
    Scaled,
)
from exporter.models.registry import adapt
from tests.multiply_adds import counted
from tests.vits import POOLED, make_model, make_vit, random_images

ROTARY = ("eva02, joined, rotary", "rotary a head", "dinov3")
POSITIONS = torch.tensor([[0, 3, 7, 9, 15], [1, 2, 3, 4, 14]])


@pytest.mark.parametrize("family", ROTARY)
def test_survivors_are_turned_by_their_own_positions(family: str) -> None:
    model: Any = make_model(family)
    assert isinstance(model, Eva)
    vit = adapt(model)
    prefix, block = vit.spec.num_prefix_tokens, vit.blocks[1]
    table = model.rope.get_embed(shape=list(vit.spec.grid))
    with torch.inference_mode():
        tokens = torch.randn(2, prefix + 5, 48)
        half, _ = attention_half(block, tokens, POSITIONS)
        together = mlp_half(block, half)
        assert torch.equal(whole_block(block, tokens, POSITIONS), together)
        for image, positions in enumerate(POSITIONS):
            rows = table[1][:, positions] if model.rope_mixed else table[positions]
            alone = model.blocks[1](tokens[image : image + 1], rope=rows)[0]
            torch.testing.assert_close(together[image], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ROTARY)
def test_the_first_patches_positions_are_not_good_enough(family: str) -> None:
    vit = make_vit(family)
    with torch.inference_mode():
        tokens = vit.embed(random_images(vit, 2))[:, : vit.spec.num_prefix_tokens + 5]
        right, _ = attention_half(vit.blocks[0], tokens, POSITIONS)
        wrong, _ = attention_half(vit.blocks[0], tokens, torch.arange(5).expand(2, -1))
    assert not torch.allclose(right, wrong)


@pytest.mark.parametrize("gate_last", [True, False])
def test_a_gate_activates_one_half(gate_last: bool) -> None:
    hidden = torch.tensor([[1.0, 2.0, -3.0, 4.0]])
    expected = [[0.0, 8.0]] if gate_last else [[-3.0, 8.0]]
    assert Gate(nn.ReLU(), gate_last=gate_last)(hidden).tolist() == expected


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), bias=st.booleans())
def test_joined_layers_are_one_whose_outputs_stand_side_by_side(sizes: list[int], bias: bool) -> None:
    layers = [nn.Linear(3, size, bias=bias) for size in sizes]
    joined, tokens = JoinedLinear(layers), torch.randn(2, 5, 3)
    with torch.inference_mode():
        got = joined(tokens)
        assert joined.weight.shape == (sum(sizes), 3)
        start = 0
        for layer, size in zip(layers, sizes, strict=True):
            assert torch.equal(got[..., start : start + size], layer(tokens))
            assert torch.equal(joined.weight[start : start + size], layer.weight)
            start += size


def test_a_branch_is_divided_or_scaled_channel_by_channel() -> None:
    branch, gamma = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), nn.Parameter(torch.tensor([-1.0, 0.5]))
    assert Divided(2.0)(branch).tolist() == [[0.5, 1.0], [1.5, 2.0]]
    scaled = Scaled(gamma)
    assert scaled(branch).tolist() == [[-1.0, 1.0], [-3.0, 2.0]]
    assert list(scaled.parameters()) == [gamma]


def rotary(heads: int | None, prefix: int = 1, *, rotate_half: bool = False) -> tuple[Rotary, torch.Tensor]:
    """Five positions, four channels; and the angle of each position and pair of channels."""
    angles = torch.rand(*(() if heads is None else (heads,)), 5, 2) * 6
    wide = torch.cat([angles, angles], -1) if rotate_half else angles.repeat_interleave(2, -1)
    return Rotary(torch.cat([wide.sin(), wide.cos()], -1), prefix, rotate_half=rotate_half), angles


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("rotate_half", [False, True])
def test_each_pair_of_channels_is_turned_by_its_angle(heads: int | None, rotate_half: bool) -> None:
    module, angles = rotary(heads, rotate_half=rotate_half)
    rows, positions = torch.randn(2, 3, 1 + 4, 4), torch.tensor([[4, 0, 2, 2], [1, 3, 4, 0]])
    turned = module(rows, positions)
    assert torch.equal(turned[:, :, :1], rows[:, :, :1])
    first, second = ([0, 1], [2, 3]) if rotate_half else ([0, 2], [1, 3])
    for image in range(2):
        for head in range(3):
            angle = (angles if heads is None else angles[head])[positions[image]]
            pairs = torch.complex(rows[image, head, 1:, first], rows[image, head, 1:, second])
            expected = pairs * torch.polar(torch.ones_like(angle), angle)
            torch.testing.assert_close(turned[image, head, 1:, first], expected.real)
            torch.testing.assert_close(turned[image, head, 1:, second], expected.imag)


@pytest.mark.parametrize("heads", [None, 3])
def test_no_positions_are_all_of_them(heads: int | None) -> None:
    module, _ = rotary(heads, prefix=0)
    rows = torch.randn(2, 3, 5, 4)
    assert module.at(None) is module.table
    assert module.at(torch.arange(5).expand(2, -1)).shape == (2, heads or 1, 5, 8)
    assert torch.equal(module(rows), module(rows, torch.arange(5).expand(2, -1)))
    assert module(rows.double()).dtype == torch.float64
    assert module.state_dict() == {}


def made(kind: str) -> Pooling:
    vit = make_vit("pooled by attention")
    assert isinstance(vit.pooling, AttentionPooling)
    rows: dict[str, Pooling] = {
        "mean": MeanPooling(1),
        "max": MaxPooling(1, with_mean=False),
        "avgmax": MaxPooling(1, with_mean=True),
        "attention": AttentionPooling(1, vit.pooling.attention),
    }
    return rows[kind]


KINDS = pytest.mark.parametrize("kind", ["mean", "max", "avgmax", "attention"])


def normed(vit: PrunableViT, tokens: int = 17) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(2, vit.spec.num_prefix_tokens + tokens, vit.spec.dim)


@pytest.mark.parametrize("family", POOLED)
def test_it_is_the_models_own(family: str) -> None:
    vit = make_vit(family)
    tokens = normed(vit)
    assert vit.pooling is not None
    with torch.inference_mode():
        pooled = vit.pooling(tokens, torch.ones_like(tokens[..., 0]))
        model: Any = vit.model
        torch.testing.assert_close(pooled, model.pool(tokens), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(vit.classify_pooled(pooled), vit.classify(tokens), rtol=1e-5, atol=1e-5)


@KINDS
def test_a_token_of_size_two_is_two_patches_and_one_of_none_is_padding(kind: str) -> None:
    pooling, tokens = made(kind), torch.randn(2, 6, 48)
    sizes = torch.tensor([[1.0, 1, 2, 1, 0, 0], [1, 3, 1, 1, 1, 1]])
    with torch.inference_mode():
        got = pooling(tokens, sizes)
        for image in range(2):
            long = tokens[image].repeat_interleave(sizes[image].long(), dim=0)[None]
            expected = pooling(long, torch.ones_like(long[..., 0]))
            torch.testing.assert_close(got[image, None], expected, rtol=1e-5, atol=1e-5)


@KINDS
def test_the_order_of_patches_does_not_matter(kind: str) -> None:
    pooling, tokens, sizes = made(kind), torch.randn(1, 6, 48), torch.rand(1, 6) + 0.5
    order = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(5)])
    with torch.inference_mode():
        shuffled = pooling(tokens[:, order], sizes[:, order])
        torch.testing.assert_close(shuffled, pooling(tokens, sizes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kwargs", [{}, {"qk_norm": True}, {"qkv_bias": False}])
def test_the_probe_is_the_attention_of_the_query(kwargs: dict[str, bool]) -> None:
    torch.manual_seed(0)
    attention = AttentionPoolLatent(48, num_heads=3, norm_layer=torch.nn.LayerNorm, **kwargs).eval()
    attention.fused_attn = False
    seen = []
    attention.q_norm.register_forward_hook(lambda *call: seen.append(call[-1]))
    attention.k_norm.register_forward_hook(lambda *call: seen.append(call[-1]))
    tokens = torch.randn(2, 5, 48)
    with torch.inference_mode():
        attention(tokens)
        query, key = seen
        expected = (query @ key.transpose(-2, -1) * attention.scale)[:, :, 0]
        got = AttentionPooling(0, attention).probe(tokens)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_the_multiply_adds_of_attention_are_counted_in_closed_form() -> None:
    vit = make_vit("pooled by attention")
    pooling = vit.pooling
    assert isinstance(pooling, AttentionPooling)
    tokens = normed(vit)
    pooling.attention.fused_attn = False
    of_one = counted(lambda: vit.model.pool(tokens)) // len(tokens)  # type: ignore[operator]
    assert of_one == pooling.macs + tokens.shape[1] * pooling.token_macs
    assert vit.spec.probe_rows == 3 and MeanPooling(0).macs == MeanPooling(0).token_macs == 0
