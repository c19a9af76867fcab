"""The operators of intra-layer factors."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from exporter.core.prune.ops.factors import (
    class_row,
    directions,
    dissimilarity,
    received,
)


def test_the_mean_over_heads_has_length_one_and_prefix_tokens_none() -> None:
    key = torch.tensor(
        [[[[9.0, 9.0], [3.0, 0.0], [0.0, 0.0]], [[9.0, 9.0], [3.0, 8.0], [0.0, 0.0]]]]
    )
    found = directions(key, 1)
    torch.testing.assert_close(found, torch.tensor([[[0.6, 0.8], [0.0, 0.0]]]))
    assert directions(key.half(), 1).dtype == torch.float32


CLASS_TOKENS = pytest.mark.parametrize("count", [1, 2])


@CLASS_TOKENS
def test_it_is_the_first_rows_of_all_head_by_head(count: int) -> None:
    query, key = some_heads(0), some_heads(1)
    expected = (query @ key.transpose(-2, -1))[:, :, :count].reshape(
        2, 3 * count, 6
    ) * 0.5
    torch.testing.assert_close(class_row(query, key, 0.5, count), expected)


@CLASS_TOKENS
def test_its_gradients_are_those_of_the_formula(count: int) -> None:
    query, key = (some_heads(seed).double().requires_grad_() for seed in (0, 1))
    assert torch.autograd.gradcheck(
        lambda q, k: class_row(q, k, 0.5, count), (query, key)
    )


def some_heads(seed: int, tokens: int = 6) -> torch.Tensor:
    return torch.randn(2, 3, tokens, 4, generator=torch.Generator().manual_seed(seed))


def whole(query: torch.Tensor, key: torch.Tensor, scale: float) -> torch.Tensor:
    return (scale * query @ key.transpose(-2, -1)).softmax(-1)


@given(stride=st.integers(1, 7), tokens=st.integers(1, 7))
def test_it_is_the_mean_of_the_columns(stride: int, tokens: int) -> None:
    query, key = some_heads(0, tokens), some_heads(1, tokens)
    expected = whole(query, key, 0.5)[:, :, ::stride].mean((1, 2))
    got = received(query, key, None, 0.5, stride)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got.sum(-1), torch.ones(2))


@given(stride=st.integers(1, 4), padding=st.integers(1, 3))
def test_padding_neither_asks_nor_answers(stride: int, padding: int) -> None:
    query, key, bias = some_heads(0), some_heads(1), torch.zeros(2, 6)
    bias[1, -padding:] = -torch.inf
    got = received(query, key, bias, 0.5, stride)
    torch.testing.assert_close(got[:1], received(query[:1], key[:1], None, 0.5, stride))
    alone = received(query[1:, :, :-padding], key[1:, :, :-padding], None, 0.5, stride)
    torch.testing.assert_close(got[1:, :-padding], alone)
    assert (got[1, -padding:] == 0).all()


def test_a_bias_makes_a_key_count_so_many_times() -> None:
    query, key = some_heads(0), some_heads(1)
    sizes = torch.tensor([1.0, 1, 1, 1, 1, 2]).expand(2, -1)
    long = whole(query, torch.cat([key, key[:, :, -1:]], dim=2), 0.5).mean((1, 2))
    expected = torch.cat([long[:, :5], long[:, 5:].sum(1, keepdim=True)], dim=1)
    torch.testing.assert_close(received(query, key, sizes.log(), 0.5, 1), expected)


def test_half_precision_is_scored_in_fp32() -> None:
    query, key = some_heads(0).bfloat16(), some_heads(1).bfloat16()
    got = received(query, key, None, 0.5, 1)
    torch.testing.assert_close(got, received(query.float(), key.float(), None, 0.5, 1))


@given(prefix=st.integers(0, 3), patches=st.integers(1, 5))
def test_it_is_one_less_the_mean_cosine(prefix: int, patches: int) -> None:
    key = some_heads(0, prefix + patches)
    mean = key.mean(1)[:, prefix:]
    cosines = F.cosine_similarity(mean[:, :, None], mean[:, None], dim=-1)
    torch.testing.assert_close(
        dissimilarity(key, None, prefix), 1 - cosines.mean(-1), rtol=1e-4, atol=1e-5
    )


def test_padding_counts_for_nothing() -> None:
    key, live = some_heads(0, 7), torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    got = dissimilarity(key, live, 1)
    torch.testing.assert_close(got[:1], dissimilarity(key[:1], None, 1))
    torch.testing.assert_close(got[1:, :4], dissimilarity(key[1:, :, :5], None, 1))
