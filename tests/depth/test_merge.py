"""Merged linear layers are the chain of modules they stand for."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from exporter.core.base.errors import DepthError
from exporter.core.vit.protocol import BlockParts, mlp_half
from exporter.depth.surgery import (
    Affine,
    merge,
    remove_activation,
    without_affine,
)
from tests.depth.models import MERGED_FAMILIES, seeded_vit
from tests.vits import cut_vit, make_vit

SIZES = st.integers(1, 12)


def seeded(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


@given(
    SIZES,
    SIZES,
    SIZES,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_a_chain_is_one_layer(
    inputs: int, hidden: int, outputs: int, one: bool, two: bool, bare: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    norm = nn.LayerNorm(inputs, elementwise_affine=not bare)
    first = nn.Linear(inputs, hidden, bias=one)
    second = nn.Linear(hidden, outputs, bias=two)
    chain = seeded(nn.Sequential(norm, first, second))
    scale = torch.randn(outputs, dtype=torch.float64)
    tokens = torch.randn(5, inputs, dtype=torch.float64)
    affine = (
        Affine.of(first)
        .then(Affine.of(second))
        .after_norm(norm)
        .scaled(scale)
        .scaled(1 / 2)
    )
    with torch.no_grad():
        expected = chain(tokens) * scale / 2
        got = affine.linear(like=second)(without_affine(norm)(tokens))
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_rounded_once(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(16, 64, dtype=dtype), nn.Linear(64, 16, dtype=dtype)
    merged = Affine.of(first).then(Affine.of(second)).linear(like=second)
    exact = (second.weight.double() @ first.weight.double()).to(dtype)
    assert (
        torch.equal(merged.weight, exact)
        and merged.weight.dtype == merged.bias.dtype == dtype
    )
    if dtype == torch.float32:  # a product of bfloat16 is summed in float32 anyway
        assert not torch.equal(merged.weight, second.weight @ first.weight)
    assert not merged.weight.requires_grad and not merged.training


TOKENS = torch.randn(2, 6, 48, generator=torch.Generator().manual_seed(0))


def mlp_of(block: BlockParts) -> Any:
    return block.mlp


@pytest.mark.parametrize("family", MERGED_FAMILIES)
def test_a_block_without_activation_and_its_merged_form(family: str) -> None:
    block = seeded_vit(family).blocks[1]
    before = mlp_half(block, TOKENS)
    mlp = mlp_of(block)
    with torch.no_grad():
        expected = TOKENS + mlp.out(mlp.fc2(mlp.fc1(mlp.norm(TOKENS))))
        apart = remove_activation(block, 2)
        assert torch.equal(mlp_half(apart, TOKENS), expected)
        assert not torch.allclose(before, expected, atol=1e-3)
        merged = merge(apart, 2)
        torch.testing.assert_close(
            mlp_half(merged, TOKENS), expected, rtol=1e-5, atol=1e-5
        )
    one = mlp_of(merged)
    assert one.whole is one.fc2 and one.fc2.weight.shape == (48, 48)
    assert all(
        isinstance(each, nn.Identity) for each in (one.fc1, one.act, one.hidden_norm)
    )
    assert not list(one.norm.parameters()), "folded"


def test_a_narrow_mlp_keeps_its_two_layers() -> None:
    """One layer pays from half the dimension."""
    block = remove_activation(make_vit("deit", mlp_ratio=0.25).blocks[0], 1)
    assert merge(block, 1) is block and mlp_of(block).fc1.out_features == 12
    half = remove_activation(make_vit("deit", mlp_ratio=0.5).blocks[0], 1)
    assert mlp_of(merge(half, 1)).fc2.in_features == 48


@pytest.mark.parametrize(
    "family", ["dinov2, gated mlp", "eva02, joined, rotary", "dinov3"]
)
def test_a_gated_mlp_is_refused(family: str) -> None:
    with pytest.raises(
        DepthError,
        match=r"^activation of layer 3 \| got a gated MLP \(SwiGLU\).* \| need two",
    ):
        remove_activation(make_vit(family).blocks[2], 3)


def test_other_mlps_that_are_refused() -> None:
    normed = make_vit("vit", scale_mlp_norm=True).blocks[0]
    with pytest.raises(DepthError, match="got a norm between the linear layers"):
        remove_activation(normed, 1)
    with pytest.raises(DepthError, match="got a block without an MLP"):
        remove_activation(cut_vit().blocks[3], 4)
    block = make_vit("vit").blocks[0]
    function = replace(block, mlp=replace(mlp_of(block), act=nn.ReLU()))
    with pytest.raises(DepthError, match="got a part that is no module"):
        remove_activation(function, 1)


def test_dropout_stops_a_merge_while_it_is_active() -> None:
    vit = make_vit("vit", proj_drop_rate=0.1)
    vit.model.train()
    block = remove_activation(vit.blocks[0], 1)
    with pytest.raises(
        DepthError,
        match=r"got dropout 0.1 in training mode \| need a model in eval mode",
    ):
        merge(block, 1)
    vit.model.eval()
    assert mlp_of(merge(block, 1)).whole.weight.shape == (48, 48)


def test_a_norm_that_attention_reads_too_is_not_folded() -> None:
    block = make_vit("vit").blocks[0]
    assert block.attention is not None
    shared = replace(block, attention=replace(block.attention, norm=mlp_of(block).norm))
    norm = mlp_of(block).norm
    assert mlp_of(merge(remove_activation(shared, 1), 1)).norm is norm
