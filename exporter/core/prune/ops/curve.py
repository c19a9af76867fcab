"""The order of a grid's patches along a curve that fills it: neighbours on the curve are neighbours in the image.

Patches that alternate along it are the squares of a chessboard: all four neighbours are of the other set. Row by
row they are columns of an even grid, and two are. The curve is Hilbert's (1891), for grids of any shape: from one
corner to the next, through both halves of a long grid, or through two quarters and the half between them. It goes
along the longer side, or along the shorter one where only that has a way by neighbours: where the longer is odd and
the shorter even. It starts at the first patch; of a square it ends with the last one of the first row.
"""

import numpy as np

from exporter.core.base.records import Schedule
from exporter.core.base.tensor_names import Array


def order_of(schedule: Schedule, grid: tuple[int, int]) -> Array:
    """Return where the patches stand before any merge, counted row by row; the first decisions count in it."""
    if schedule.along_curve:
        return along_curve(grid)
    return np.arange(grid[0] * grid[1])


def along_curve(grid: tuple[int, int]) -> Array:
    """Return the places of all patches in the order of the curve, counted row by row."""
    places = np.arange(grid[0] * grid[1]).reshape(grid)
    if grid[0] <= grid[1]:
        places = places.T
    longer, shorter = places.shape
    return _curve(places.T if longer % 2 and not shorter % 2 else places)


def _curve(places: Array) -> Array:
    """Return the places [rows, columns] from the first row's first to the last row's first."""
    rows, columns = places.shape
    if 1 in places.shape:
        return places.ravel()
    if 2 * rows > 3 * columns:
        half = _even_half(rows)
        return np.concatenate([_curve(places[:half]), _curve(places[half:])])
    across, half = _even_half(columns), rows // 2
    there = places[:half, :across].T
    back = places[half:, :across][::-1, ::-1].T
    parts = [_curve(there), _curve(places[:, across:]), _curve(back)]
    return np.concatenate(parts)


def _even_half(length: int) -> int:
    """Return about half of a length, even where it is above two: an odd part has no way from corner to corner."""
    half = length // 2
    return half + half % 2 if length > 2 else half
