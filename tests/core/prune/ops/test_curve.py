"""The curve that fills a grid."""

import numpy as np
import pytest

from exporter.core.prune.ops.curve import along_curve

SIDES = range(1, 25)


@pytest.mark.parametrize("rows", SIDES)
def test_it_reaches_each_patch_once_by_steps_to_neighbours(rows: int) -> None:
    """Of odd grids that are not square, one step may go along a diagonal."""
    for columns in SIDES:
        order = along_curve((rows, columns))
        assert sorted(order) == list(range(rows * columns))
        down, right = np.divmod(order, columns)
        steps = abs(np.diff(down)) + abs(np.diff(right))
        diagonal = (steps == 2).sum()
        assert (steps >= 1).all()
        assert (steps <= 2).all()
        assert diagonal <= (rows % 2 or columns % 2) * (rows != columns)


def test_parts_of_it_are_compact() -> None:
    """A quarter of the curve is a quarter of the grid; of rows, it is a strip."""
    corners = along_curve((8, 8)).reshape(4, 16)
    for part in corners:
        down, right = np.divmod(part, 8)
        assert np.ptp(down) == np.ptp(right) == 3
