"""Tokens back on the grid: the same for arrays and tensors, and padding stays away."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.outputs import to_grid


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.booleans())
def test_each_token_is_at_its_position_and_the_base_elsewhere(
    seed: int, width: int, counted: bool
) -> None:
    generator = np.random.default_rng(seed)
    base = generator.standard_normal((2, 9, 3))
    tokens = generator.standard_normal((2, width, 3))
    positions = np.stack([generator.permutation(9)[:width] for _ in range(2)])
    count = generator.integers(1, width + 1, 2) if counted else None
    before = base.copy()
    grid = to_grid(tokens, positions, base, count)
    assert np.array_equal(base, before)
    for image in range(2):
        own = width if count is None else count[image]
        at = positions[image, :own]
        assert np.array_equal(grid[image, at], tokens[image, :own])
        rest = np.setdiff1d(np.arange(9), at)
        assert np.array_equal(grid[image, rest], base[image, rest])
    values, places, others = (
        torch.from_numpy(each) for each in (tokens, positions, base)
    )
    counts = None if count is None else torch.from_numpy(count)
    assert np.array_equal(to_grid(values, places, others, counts).numpy(), grid)


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4), (2, 2), (2, 9, 4)),
        ((2, 3, 4), (2, 3), (2, 9, 5)),
        ((3, 4), (3,), (9, 4)),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes: Any) -> None:
    tokens, positions, base = (np.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match=r"tokens \["):
        to_grid(tokens, positions.astype(np.int64), base)
