"""The attention received: the mean of the attention matrix's columns, over queries that are there."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.ops.received import received


def heads(seed: int, tokens: int = 6) -> torch.Tensor:
    return torch.randn(2, 3, tokens, 4, generator=torch.Generator().manual_seed(seed))


def whole(query: torch.Tensor, key: torch.Tensor, scale: float) -> torch.Tensor:
    return (scale * query @ key.transpose(-2, -1)).softmax(-1)


@given(stride=st.integers(1, 7), tokens=st.integers(1, 7))
def test_it_is_the_mean_of_the_columns(stride: int, tokens: int) -> None:
    query, key = heads(0, tokens), heads(1, tokens)
    expected = whole(query, key, 0.5)[:, :, ::stride].mean((1, 2))
    got = received(query, key, None, 0.5, stride)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got.sum(-1), torch.ones(2))


@given(stride=st.integers(1, 4), padding=st.integers(1, 3))
def test_padding_neither_asks_nor_answers(stride: int, padding: int) -> None:
    query, key, bias = heads(0), heads(1), torch.zeros(2, 6)
    bias[1, -padding:] = -torch.inf
    got = received(query, key, bias, 0.5, stride)
    torch.testing.assert_close(got[:1], received(query[:1], key[:1], None, 0.5, stride))
    alone = received(query[1:, :, :-padding], key[1:, :, :-padding], None, 0.5, stride)
    torch.testing.assert_close(got[1:, :-padding], alone)
    assert (got[1, -padding:] == 0).all()


def test_a_bias_makes_a_key_count_so_many_times() -> None:
    query, key = heads(0), heads(1)
    sizes = torch.tensor([1.0, 1, 1, 1, 1, 2]).expand(2, -1)
    long = whole(query, torch.cat([key, key[:, :, -1:]], dim=2), 0.5).mean((1, 2))
    expected = torch.cat([long[:, :5], long[:, 5:].sum(1, keepdim=True)], dim=1)
    torch.testing.assert_close(received(query, key, sizes.log(), 0.5), expected)


def test_half_precision_is_scored_in_fp32() -> None:
    query, key = heads(0).bfloat16(), heads(1).bfloat16()
    got = received(query, key, None, 0.5)
    torch.testing.assert_close(got, received(query.float(), key.float(), None, 0.5))


@pytest.mark.parametrize("bias", [None, torch.zeros(2, 6)])
def test_the_operator_is_well_formed(bias: torch.Tensor | None) -> None:
    torch.library.opcheck(torch.ops.star.received, (heads(0), heads(1), bias, 0.5, 2))


def test_no_gradient_passes() -> None:
    query = heads(0).requires_grad_()
    assert not received(query, heads(1), None, 0.5).requires_grad
