"""The operators of top-k, of gathers and of packing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.prune.ops.cdf_reference import cdf_retain as reference
from exporter.core.prune.ops.selection import (
    cdf_retain,
    keep_top_k,
    pack_tokens,
    take_rows,
    take_tokens,
)
from tests.core.prune.ops.references import drawn_choice, packed
from tests.core.prune.ops.rows import KINDS, score_rows, valid_counts

# Few different values, so that ties are the rule.
ROWS = st.lists(st.integers(0, 4), min_size=1, max_size=24)


@given(row=ROWS, data=st.data())
def test_the_best_are_kept_ties_to_the_lower_position(
    row: list[int], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(row)))
    kept = keep_top_k(torch.tensor([row], dtype=torch.float32), k)[0].tolist()
    expected = sorted(sorted(range(len(row)), key=lambda i: (-row[i], i))[:k])
    assert kept == expected


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_take_keeps_the_prefix_and_gathers_patches(prefix: int) -> None:
    tokens = torch.randn(2, prefix + 5, 4)
    keep = torch.tensor([[0, 3], [1, 4]])
    taken = take_tokens(tokens, keep, prefix)
    for image in range(2):
        expected = torch.cat(
            [tokens[image, :prefix], tokens[image, prefix + keep[image]]]
        )
        assert torch.equal(taken[image], expected)


def test_gradients_of_a_patch_that_is_taken_twice_are_added() -> None:
    tokens = torch.randn(1, 4, 2, requires_grad=True)
    taken = take_tokens(tokens, torch.tensor([[0, 2, 0]]), 1)
    (taken * torch.tensor([1.0, 2.0, 3.0, 0.0])[:, None]).sum().backward()
    assert tokens.grad is not None
    assert tokens.grad[0].sum(-1).tolist() == [2.0, 4.0, 0.0, 6.0]


def test_rows_are_taken_by_slot_and_their_gradients_are_added() -> None:
    packed = torch.randn(3, 2, requires_grad=True)
    slots = torch.tensor([[0, 1, 1], [2, 2, 0]])
    taken = take_rows(packed, slots)
    assert torch.equal(taken, packed[slots])
    taken.sum().backward()
    assert packed.grad is not None
    assert packed.grad.sum(-1).tolist() == [4.0, 4.0, 4.0]


@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_the_rows_that_stay_are_those_of_a_loop(seed: int, prefix: int) -> None:
    slots, index, count = drawn_choice(np.random.default_rng(seed), prefix)
    before, kept, number = (torch.from_numpy(each) for each in (slots, index, count))
    found = pack_tokens(before, kept, number, prefix)
    for ours, expected in zip(found, packed(slots, index, count, prefix), strict=True):
        np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("patches", [1, 2, 9, 196, 577])
def test_keeps_what_the_reference_keeps(kind: str, patches: int) -> None:
    score = score_rows(kind, 200, patches)
    for mass in (0.1, 0.5, float(np.float32(0.7)), 0.95, 1.0):
        for valid in valid_counts(len(score), patches):
            expected = reference(score, valid, mass)
            got = cdf_retain(torch.from_numpy(score), torch.from_numpy(valid), mass)
            for ours, theirs in zip(got, expected, strict=True):
                np.testing.assert_array_equal(ours.numpy(), theirs)
