"""Small modules that stand for parts; rotary positions travel with the survivors, as in timm's own block."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.models.eva import Eva
from torch import nn

from exporter.models.block import attention_half, mlp_half, whole_block
from exporter.models.parts import Divided, Gate, JoinedLinear, Rotary, Scaled
from exporter.models.registry import adapt
from tests.vits import make_model, make_vit, random_images

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


def test_gradients_reach_each_joined_layer_by_the_weight() -> None:
    joined = JoinedLinear([nn.Linear(3, 2), nn.Linear(3, 4)])
    joined.weight.sum().backward()
    assert all(torch.equal(part.weight.grad, torch.ones_like(part.weight)) for part in joined.parts)  # type: ignore[arg-type]


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
