"""Tiles of attention: they cover it once, and add up to what its whole matrices give."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exporter.calibration import attention
from exporter.calibration.backward import cam_to_block_input
from exporter.calibration.rules import guarded_inverse
from exporter.calibration.trace import AttentionTrace, in_dtype, trace
from exporter.core.vit.protocol import AttentionParts
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


def second_attention(family: str) -> tuple[AttentionParts, AttentionTrace]:
    """The attention of a model's second block, and what images leave in it."""
    vit = in_dtype(tiny_vit(family), torch.float64)
    images = frozen_images(2, vit.spec.preprocessing.input_size[1:])
    part, traced = vit.blocks[1].attention, trace(vit, images).blocks[1].attention
    assert part is not None and traced is not None
    return part, traced


@pytest.fixture(params=["plain", "q/k norm", "joined, rotary"])
def seen(request: pytest.FixtureRequest) -> AttentionTrace:
    _, traced = second_attention(request.param)
    return traced


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


@pytest.mark.parametrize("family", ["joined, rotary", "rotary a head", "dinov3"])
def test_what_is_turned_by_its_position_is_turned_back(family: str) -> None:
    part, seen = second_attention(family)
    rotary = part.rotary
    assert rotary is not None
    skip = drawn(0, seen, *seen.tokens.shape[1:])
    query, key, value = (drawn(seed, seen, *seen.query.shape[1:]) for seed in (1, 2, 3))

    def turned_back(relevance: Tensor, normed: Tensor, turned: Tensor) -> Tensor:
        shares = relevance * guarded_inverse(turned).unsqueeze(1)
        return torch.stack(
            [
                normed * torch.func.vjp(rotary, normed)[1](shares[:, place])[0]
                for place in range(CLASSES)
            ],
            dim=1,
        )

    found = cam_to_block_input(
        part, seen, skip, attention.QueryKeyValue(query, key, value)
    )
    before = attention.QueryKeyValue(
        turned_back(query, seen.normed_query, seen.query),
        turned_back(key, seen.normed_key, seen.key),
        value,
    )
    without = replace(part, rotary=None)
    close(found, cam_to_block_input(without, seen, skip, before))
