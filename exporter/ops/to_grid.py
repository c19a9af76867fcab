"""Put tokens back on the grid of patches, for code that gets `tokens` and their positions from a model."""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

ArrayT = TypeVar("ArrayT", np.ndarray[Any, Any], "Tensor")


def to_grid(tokens: ArrayT, positions: ArrayT, base: ArrayT, count: ArrayT | None = None) -> ArrayT:
    """Return `base` with the tokens at their positions; arrays of NumPy and tensors of PyTorch alike.

    Where the last values of dropped patches, or merged ones, are needed, a model gives them as its output `grid`.

    Args:
        tokens: [batch, k, channels], a model's output `tokens` or `layer_NN`.
        positions: [batch, k] int64, `tokens_positions`: places in the grid, counted row by row from 0.
        base: What the other places have, [batch, patches, channels]: zeros, or the tokens of a layer that has them
            all.
        count: [batch] int64, `tokens_count`: how many of the k are an image's own. None: all.

    Raises:
        ValueError: The shapes do not fit each other.
    """
    fits = tokens.ndim == base.ndim == 3 and tuple(positions.shape) == tuple(tokens.shape[:2])
    if not fits or (tokens.shape[0], tokens.shape[2]) != (base.shape[0], base.shape[2]):
        shapes = (list(each.shape) for each in (tokens, positions, base))
        raise ValueError("tokens {}, positions {} and base {} do not fit".format(*shapes))
    grid: Any = base.copy() if isinstance(base, np.ndarray) else base.clone()
    for image in range(len(tokens)):
        own = tokens.shape[1] if count is None else int(count[image])
        grid[image, positions[image, :own]] = tokens[image, :own]
    return grid
