"""How little a patch resembles the others: 1 − the mean of its cosines."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from exporter.ops.dissimilarity import dissimilarity


def keys(tokens: int = 7) -> torch.Tensor:
    return torch.randn(2, 3, tokens, 4, generator=torch.Generator().manual_seed(0))


@given(prefix=st.integers(0, 3), patches=st.integers(1, 5))
def test_it_is_one_less_the_mean_cosine(prefix: int, patches: int) -> None:
    key = keys(prefix + patches)
    mean = key.mean(1)[:, prefix:]
    cosines = F.cosine_similarity(mean[:, :, None], mean[:, None], dim=-1)
    torch.testing.assert_close(dissimilarity(key, None, prefix), 1 - cosines.mean(-1), rtol=1e-4, atol=1e-5)


def test_padding_counts_for_nothing() -> None:
    key, live = keys(), torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    got = dissimilarity(key, live, 1)
    torch.testing.assert_close(got[:1], dissimilarity(key[:1], None, 1))
    torch.testing.assert_close(got[1:, :4], dissimilarity(key[1:, :, :5], None, 1))


def test_the_odd_one_out_is_the_least_like_the_others() -> None:
    key = torch.ones(1, 2, 5, 4)
    key[:, :, 3] = torch.tensor([1.0, -1, 1, -1])
    assert dissimilarity(key, None, 0).argmax() == 3


@pytest.mark.parametrize("live", [None, torch.ones(2, 7, dtype=torch.bool)])
def test_the_operator_is_well_formed(live: torch.Tensor | None) -> None:
    torch.library.opcheck(torch.ops.star.dissimilarity, (keys(), live, 1))


def test_no_gradient_passes() -> None:
    assert not dissimilarity(keys().requires_grad_(), None, 1).requires_grad
