"""The curve that fills a grid."""

import numpy as np
import pytest

from exporter.core.prune.ops.curve import along_curve

SIDES = range(1, 41)


@pytest.mark.parametrize("rows", SIDES)
def test_it_reaches_each_patch_once_by_steps_to_neighbours(rows: int) -> None:
    """So alternate patches are the squares of a chessboard."""
    for columns in SIDES:
        order = along_curve((rows, columns))
        assert sorted(order) == list(range(rows * columns))
        down, right = np.divmod(order, columns)
        assert (abs(np.diff(down)) + abs(np.diff(right)) == 1).all()


def test_the_order_that_the_page_prints() -> None:
    order = [0, 1, 5, 4, 8, 12, 13, 9, 10, 14, 15, 11, 7, 6, 2, 3]
    assert along_curve((4, 4)).tolist() == order


def test_parts_of_it_are_compact() -> None:
    """A quarter of the curve is a quarter of the grid; of rows, it is a strip."""
    corners = along_curve((8, 8)).reshape(4, 16)
    for part in corners:
        down, right = np.divmod(part, 8)
        assert np.ptp(down) == np.ptp(right) == 3
