"""Pairs against their NumPy reference, which goes token by token."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.library import opcheck

from exporter.ops.likeness import WIDEST_GAP
from exporter.ops.pair_sets import joined_patches
from exporter.ops.pairing import PAIR_SCORE, pair_tokens
from tests.ops.pairing_reference import reference_pairs

Case = tuple[torch.Tensor, int, int]
# Further apart than float32 rounds.
CLEAR = 1e-5


@st.composite
def cases(draw: st.DrawFn, *, tied: bool = False) -> Case:
    """The keys of two images, the number of survivors, and that of prefix tokens."""
    prefix, n = draw(st.integers(0, 3)), draw(st.integers(2, 13))
    alternating = len(joined_patches(n, n, prefix))
    kept = draw(st.sampled_from([max(alternating, 1), n]) | st.integers(1, n))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if tied:  # one of three directions for each token: every cosine is exactly 0 or 1
        keys = np.eye(3)[rng.integers(0, 3, (2, 1, prefix + n))]
    else:
        keys = rng.standard_normal((2, draw(st.integers(1, 3)), prefix + n, draw(st.integers(2, 5))))
    return torch.from_numpy(keys.astype(np.float32)), kept, prefix


@given(case=cases())
def test_the_most_similar_join_their_nearest(case: Case) -> None:
    key, kept, prefix = case
    index, into, score, gap = pair_tokens(key, kept, prefix)
    for image in range(2):
        expected = reference_pairs(key[image].numpy(), kept, prefix)
        np.testing.assert_allclose(score[image], expected.score, atol=CLEAR)
        if expected.margin < CLEAR:
            continue
        np.testing.assert_array_equal(index[image], expected.index)
        np.testing.assert_allclose(gap[image], expected.gap, atol=CLEAR)
        clear = expected.gap > CLEAR
        np.testing.assert_array_equal(into[image].numpy()[clear], expected.into[clear])


@given(case=cases(tied=True))
def test_of_equal_cosines_the_lower_position_stays_and_is_joined(case: Case) -> None:
    key, kept, prefix = case
    results = pair_tokens(key, kept, prefix)
    for image in range(2):
        expected = reference_pairs(key[image].numpy(), kept, prefix)
        parts = (expected.index, expected.into, expected.score, expected.gap)
        for got, part in zip(results, parts, strict=True):
            np.testing.assert_array_equal(got[image], part)


@given(case=cases())
def test_survivors_join_themselves_and_every_other_patch_one_of_the_second_set(case: Case) -> None:
    key, kept, prefix = case
    index, into, score, gap = pair_tokens(key, kept, prefix)
    assert torch.equal(into.gather(1, index), torch.arange(kept).expand(2, -1))
    assert (gap.gather(1, index) == WIDEST_GAP).all()
    joined_from = kept - len(joined_patches(key.shape[2] - prefix, kept, prefix))
    for image in range(2):
        gone = sorted(set(range(into.shape[1])) - set(index[image].tolist()))
        assert (into[image, gone] >= joined_from).all()
        assert (score[image, index[image, joined_from:]] == PAIR_SCORE).all()


def test_the_order_is_that_of_tome() -> None:
    """What stays of the first set, then the second set: the next layer alternates between these neighbours."""
    key = torch.tensor([[0.0, 1], [1, 0], [1, 0.1], [0, 1], [-1, 0], [1, 1]]).reshape(1, 1, 6, 2)
    index, into, _, _ = pair_tokens(key, 4, 1)
    assert index.tolist() == [
        [3, 0, 2, 4]
    ]  # the class token, then patches 0 to 4; patch 1 resembles patch 0 most
    assert into.tolist() == [[1, 1, 2, 0, 3]]


def test_prefix_tokens_have_no_say() -> None:
    key, other = torch.randn(2, 2, 9, 4), torch.randn(2, 2, 2, 4)
    changed = torch.cat([other, key[:, :, 2:]], dim=2)
    for one, two in zip(pair_tokens(key, 5, 2), pair_tokens(changed, 5, 2), strict=True):
        assert torch.equal(one, two)


def test_gradients_do_not_pass() -> None:
    key = torch.randn(1, 2, 8, 4, requires_grad=True)
    assert not any(each.requires_grad for each in pair_tokens(key, 5, 1))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # opcheck's own
@pytest.mark.parametrize(("kept", "prefix"), [(4, 1), (5, 1), (3, 0), (4, 3), (2, 1)])
def test_the_operator_is_well_formed(kept: int, prefix: int) -> None:
    key = torch.randn(2, 2, prefix + 7, 4, requires_grad=True)
    opcheck(torch.ops.star.pair_tokens.default, (key, kept, prefix))
