"""Merged linear layers are the chain of modules they stand for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from exporter.depth.surgery import Affine, saves_macs, without_affine

SIZES = st.integers(1, 12)


def seeded(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


@settings(max_examples=50, deadline=None)
@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_a_chain_is_one_layer(
    inputs: int, hidden: int, outputs: int, one: bool, two: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    norm = nn.LayerNorm(inputs)
    first, second = nn.Linear(inputs, hidden, bias=one), nn.Linear(hidden, outputs, bias=two)
    chain = seeded(nn.Sequential(norm, first, second))
    scale, tokens = torch.randn(outputs, dtype=torch.float64), torch.randn(5, inputs, dtype=torch.float64)
    affine = Affine.of(first).then(Affine.of(second)).after_norm(norm).scaled(scale).scaled(1 / 2)
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
    assert torch.equal(merged.weight, exact) and merged.weight.dtype == merged.bias.dtype == dtype
    if dtype == torch.float32:  # a product of bfloat16 is summed in float32 anyway
        assert not torch.equal(merged.weight, second.weight @ first.weight)
    assert not merged.weight.requires_grad and not merged.training


def test_a_norm_without_parameters_folds_to_nothing_new() -> None:
    norm, linear = nn.LayerNorm(4, elementwise_affine=False), nn.Linear(4, 3)
    folded = Affine.of(linear).after_norm(norm).linear(like=linear)
    assert torch.equal(folded.weight, linear.weight) and torch.equal(folded.bias, linear.bias)
    bare = without_affine(nn.LayerNorm(4, eps=0.25))
    assert bare.eps == 0.25 and not list(bare.parameters())


def test_meta_stays_meta() -> None:
    first, second = nn.Linear(4, 8, device="meta"), nn.Linear(8, 4, device="meta")
    assert Affine.of(first).then(Affine.of(second)).linear(like=second).weight.is_meta


@pytest.mark.parametrize(("hidden", "pays"), [(768 * 4, True), (384, True), (383, False), (1, False)])
def test_merging_pays_from_half_the_dimension(hidden: int, pays: bool) -> None:
    assert saves_macs(nn.Linear(768, hidden), nn.Linear(hidden, 768)) is pays
