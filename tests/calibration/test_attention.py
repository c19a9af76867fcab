"""Tiles of attention: they cover it once, and add up to what its whole matrices give."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exporter.calibration import attention
from exporter.calibration.trace import AttentionTrace, in_dtype, trace
from tests.calibration.samples import frozen_images, tiny_vit
from tests.calibration.whole_attention import (
    gradient_of_attention,
    product_rule,
    relevance_of_attention,
)

CLASSES = 3


@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 12), st.integers(1, 5000))
def test_tiles_cover_every_query_of_every_head_once(
    heads: int, tokens: int, signals: int, size: int
) -> None:
    seen = np.zeros((heads, tokens), int)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "TILE", size)
        for head, query in attention.tiles(heads, tokens, signals):
            seen[head, query] += 1
            values = seen[head, query].size * signals * tokens
            assert values <= max(size, signals * tokens)  # at least one row
    assert (seen == 1).all()


@pytest.fixture(params=["plain", "q/k norm", "joined, rotary"])
def seen(request: pytest.FixtureRequest) -> AttentionTrace:
    vit = in_dtype(tiny_vit(request.param), torch.float64)
    found = (
        trace(vit, frozen_images(2, vit.spec.preprocessing.input_size[1:]))
        .blocks[1]
        .attention
    )
    assert found is not None
    return found


@pytest.fixture(params=[1, 150, 2000, 2**20], ids=lambda size: f"tiles of {size}")
def tile(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """From a row at a time to all heads at once."""
    monkeypatch.setattr(attention, "TILE", request.param)
    yield request.param


def drawn(seed: int, seen: AttentionTrace, *shape: int) -> Tensor:
    numbers = np.random.RandomState(seed).standard_normal(
        (len(seen.tokens), CLASSES, *shape)
    )
    return torch.from_numpy(numbers)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(
        found, expected, rtol=1e-7, atol=1e-9 * float(expected.abs().max())
    )


@pytest.mark.usefixtures("tile")
def test_tiles_add_up_to_the_rules_and_to_autograd(seen: AttentionTrace) -> None:
    cam, gradient = (drawn(seed, seen, *seen.context.shape[1:]) for seed in (0, 1))
    row = drawn(2, seen, seen.tokens.shape[1])
    found_row, below, slopes = attention.propagate(seen, row, cam, gradient)
    weights, value = relevance_of_attention(seen, cam)
    weight = (weights * gradient_of_attention(seen, gradient)).clamp(min=0).mean(2)
    close(found_row, torch.einsum("bkt,bktu->bku", row, weight))
    query, key = product_rule(
        weights, seen.query.unsqueeze(1), seen.key.unsqueeze(1).mT
    )
    for ours, expected in zip(below, (query, key.mT, value), strict=True):
        close(ours, expected)
    for place in range(CLASSES):
        for ours, expected in zip(
            slopes, by_autograd(seen, gradient[:, place]), strict=True
        ):
            close(ours[:, place], expected)


def by_autograd(seen: AttentionTrace, gradient: Tensor) -> Any:
    leaves = [
        each.clone().requires_grad_() for each in (seen.query, seen.key, seen.value)
    ]
    query, key, value = leaves
    context = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1) @ value
    return torch.autograd.grad(context, leaves, gradient)
