"""The operators of merging, by survivors and in pairs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.prune.ops.factors import WIDEST_GAP
from exporter.core.prune.ops.merging import (
    merge_into,
    merge_tokens,
    nearest_survivor,
    pair_tokens,
    pairs,
)
from exporter.core.schedule.counts import joined_patches
from tests.core.prune.ops.references import (
    Pairs,
    reference_into,
    reference_mean,
    reference_pairs,
)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """Two images: keys [2, heads, tokens, channels], tokens [2, tokens, dim], survivors, sizes, prefix tokens."""

    key: torch.Tensor
    tokens: torch.Tensor
    keep: torch.Tensor
    sizes: torch.Tensor | None
    prefix: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    prefix = draw(st.integers(0, 3))
    n = draw(st.integers(1, 12))
    channels = draw(st.integers(2, 5))
    k, heads = draw(st.integers(1, n)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    key = torch.from_numpy(
        rng.standard_normal((2, heads, prefix + n, channels)).astype(np.float32)
    )
    tokens = torch.from_numpy(
        rng.standard_normal((2, prefix + n, 6)).astype(np.float32)
    )
    keep = torch.from_numpy(
        np.stack([np.sort(rng.permutation(n)[:k]) for _ in range(2)])
    )
    sizes = torch.from_numpy(rng.integers(1, 6, (2, prefix + n)).astype(np.float32))
    sizes[:, :prefix] = 1
    return Case(key, tokens, keep, sizes if draw(st.booleans()) else None, prefix)


@given(case=cases())
def test_each_patch_joins_the_survivor_it_resembles_most(case: Case) -> None:
    into, gap = merge_into(case.key, case.keep, case.prefix)
    for image in range(2):
        places, gaps = reference_into(
            case.key[image].numpy(), case.keep[image].numpy(), case.prefix
        )
        clear = gaps > 1e-4
        np.testing.assert_array_equal(into[image].numpy()[clear], places[clear])
        np.testing.assert_allclose(gap[image], gaps, atol=1e-4)


@given(case=cases())
def test_survivors_are_means_weighted_by_sizes(case: Case) -> None:
    tokens, kept = case.tokens, case.keep.shape[1]
    into, _ = merge_into(case.key, case.keep, case.prefix)
    merged, merged_sizes = merge_tokens(tokens, into, case.sizes, kept, case.prefix)
    for image in range(2):
        own = None if case.sizes is None else case.sizes[image].numpy()
        expected = reference_mean(
            tokens[image].numpy(), into[image].numpy(), own, kept, case.prefix
        )
        np.testing.assert_allclose(merged[image], expected[0], atol=1e-5)
        np.testing.assert_array_equal(merged_sizes[image], expected[1])
    assert torch.equal(merged[:, : case.prefix], tokens[:, : case.prefix])


def test_equal_similarities_go_to_the_lower_position_and_twins_stay_themselves() -> (
    None
):
    key = torch.tensor([[[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]]])
    into, gap = merge_into(key, torch.tensor([[0, 1, 2]]), 0)
    assert into.tolist() == [[0, 1, 2, 0]]
    assert gap[0, :3].tolist() == [WIDEST_GAP] * 3
    assert gap[0, 3].item() == pytest.approx(0, abs=1e-6)


def test_gradients_reach_every_token_by_its_weight() -> None:
    tokens = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    into = torch.tensor([[0, 1, 0, 1, 1], [1, 0, 0, 0, 1]])
    sizes = torch.tensor([[1.0, 2, 1, 1, 3, 1], [1.0, 1, 1, 4, 1, 2]])
    assert torch.autograd.gradcheck(
        lambda values: merge_tokens(values, into, sizes, 2, 1)[0], (tokens,)
    )


Pairing = tuple[torch.Tensor, torch.Tensor | None, int, int]
# Further apart than float32 rounds.
CLEAR = 1e-5


@st.composite
def pairings(draw: st.DrawFn, *, tied: bool = False) -> Pairing:
    """The keys of two images, sizes or none, the number of survivors, and that of prefix tokens."""
    prefix, n = draw(st.integers(0, 3)), draw(st.integers(2, 13))
    alternating = len(joined_patches(n, n, prefix))
    kept = draw(st.sampled_from([max(alternating, 1), n]) | st.integers(1, n))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if tied:  # one of three directions for each token: every cosine is exactly 0 or 1
        keys = np.eye(3)[rng.integers(0, 3, (2, 1, prefix + n))]
    else:
        keys = rng.standard_normal(
            (2, draw(st.integers(1, 3)), prefix + n, draw(st.integers(2, 5)))
        )
    # Fourth roots of these are exact, so that ties stay.
    sizes = torch.from_numpy(
        rng.integers(1, 4, keys[:, 0, :, 0].shape).astype(np.float32) ** 4
    )
    return (
        torch.from_numpy(keys.astype(np.float32)),
        draw(st.sampled_from([None, sizes])),
        kept,
        prefix,
    )


def expected_pairs(case: Pairing, image: int) -> Pairs:
    key, sizes, kept, prefix = case
    return reference_pairs(
        key[image].numpy(),
        kept,
        prefix,
        None if sizes is None else sizes[image].numpy(),
    )


@given(case=pairings())
def test_the_most_similar_join_their_nearest(case: Pairing) -> None:
    index, into, score, gap = pair_tokens(*case)
    for image in range(2):
        expected = expected_pairs(case, image)
        np.testing.assert_allclose(score[image], expected.score, atol=CLEAR)
        if expected.margin < CLEAR:
            continue
        np.testing.assert_array_equal(index[image], expected.index)
        np.testing.assert_allclose(gap[image], expected.gap, atol=CLEAR)
        clear = expected.gap > CLEAR
        np.testing.assert_array_equal(into[image].numpy()[clear], expected.into[clear])


@given(case=pairings(tied=True))
def test_of_equal_cosines_the_lower_position_stays_and_is_joined(case: Pairing) -> None:
    results = pair_tokens(*case)
    for image in range(2):
        expected = expected_pairs(case, image)
        parts = (expected.index, expected.into, expected.score, expected.gap)
        for got, part in zip(results, parts, strict=True):
            np.testing.assert_array_equal(got[image], part)


def test_patches_that_others_join_score_above_any_that_may_join() -> None:
    """Also above the largest and most unlike ones: each of two opposite tokens stands for a thousand patches."""
    key = torch.tensor([1.0, -1.0] * 4).view(1, 1, 8, 1)
    survivors, _, score, _ = pair_tokens(key, torch.full((1, 8), 1000.0), 6, 0)
    second = list(joined_patches(8, 6, 0))
    joins = [patch for patch in range(8) if patch not in second]
    assert set(second) <= set(survivors[0].tolist())
    assert score[0, second].min() > score[0, joins].max() > 60.0


@given(pairing=pairings())
def test_what_nobody_checks_is_left_out_alone(pairing: Pairing) -> None:
    for plain, checked in zip(pairs(*pairing), pair_tokens(*pairing), strict=False):
        assert plain.equal(checked)
    key, _, kept, prefix = pairing
    keep = torch.arange(kept).expand(len(key), -1)
    into, _ = merge_into(key, keep, prefix)
    assert nearest_survivor(key, keep, prefix).equal(into)


def test_autocast_rounds_no_decision_and_no_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    key, tokens = (torch.randn(2, 1, 40, 16, generator=generator) for _ in range(2))
    index, into, score, gap = pair_tokens(key, None, 25, 1)
    means = merge_tokens(tokens[:, 0], into, None, 25, 1)
    with torch.autocast("cpu", torch.bfloat16):
        again = pair_tokens(key, None, 25, 1)
        means_again = merge_tokens(tokens[:, 0], into, None, 25, 1)
    for ours, theirs in zip(
        (*again, *means_again), (index, into, score, gap, *means), strict=True
    ):
        assert ours.equal(theirs)
