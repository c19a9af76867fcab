"""Packed tokens after a choice: the rows that stay, and where they stand, against a loop over images."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.ops.packing import Packing, pack_tokens
from tests.ops.packing_reference import drawn_choice, packed


@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_the_rows_that_stay_are_those_of_a_loop(seed: int, prefix: int) -> None:
    slots, index, count = drawn_choice(np.random.default_rng(seed), prefix)
    before, kept, number = (torch.from_numpy(each) for each in (slots, index, count))
    found = pack_tokens(before, kept, number, prefix)
    for name, expected in packed(slots, index, count, prefix)._asdict().items():
        np.testing.assert_array_equal(getattr(found, name).numpy(), expected, err_msg=name)


def test_padding_is_the_last_survivor_again() -> None:
    slots, index, count = (
        torch.tensor([[0, 1, 2], [3, 4, 5]]),
        torch.tensor([[0, 1], [1, 0]]),
        torch.tensor([2, 1]),
    )
    found = pack_tokens(slots, index, count, 1)
    assert isinstance(found, Packing)
    assert found.rows.tolist() == [0, 1, 2, 3, 5]
    assert found.live.tolist() == [[True, True, True], [True, True, False]]
    assert found.slots.tolist() == [[0, 1, 2], [3, 4, 4]]
    assert found.places.tolist() == [0, 1, 2, 3, 4]
