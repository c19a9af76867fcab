"""Read from a model's tensors which patches survive each layer, in one form for STAR and a-STAR."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from exporter.tensor_names import count_name, keep_layers, keep_name

__all__ = ["NOBODY", "patches_left", "positions_by_layer", "survivors_of", "take"]

Array = np.ndarray[Any, Any]

NOBODY = -1


def survivors_of(tensors: Mapping[str, Array], layer: int) -> Array:
    """Return survivors of a 1-based layer [images, k] as indices into its input patches, padded with NOBODY."""
    keep = tensors[keep_name(layer)]
    if count_name(layer) not in tensors:
        return keep
    return np.where(np.arange(keep.shape[1]) < tensors[count_name(layer)][:, None], keep, NOBODY)


def positions_by_layer(tensors: Mapping[str, Array]) -> dict[int, Array]:
    """Return the image positions of the patches left after each pruning layer, padded with NOBODY."""
    positions: dict[int, Array] = {}
    current: Array | None = None
    for layer in keep_layers(tensors):
        survivors = survivors_of(tensors, layer)
        current = survivors if current is None else take(current, survivors)
        positions[layer] = current
    return positions


def patches_left(tensors: Mapping[str, Array], depth: int, num_patches: int) -> Array:
    """Return the number of patches that each image has left after each layer, [images, depth] int64."""
    positions = positions_by_layer(tensors)
    images = len(next(iter(tensors.values())))
    left, columns = np.full(images, num_patches), []
    for layer in range(1, depth + 1):
        left = (positions[layer] != NOBODY).sum(axis=1) if layer in positions else left
        columns.append(left)
    return np.stack(columns, axis=1)


def take(positions: Array, survivors: Array) -> Array:
    """Return the positions [images, k] of survivors; an index out of range is clipped to the nearest valid one."""
    taken = np.take_along_axis(positions, survivors.clip(0, positions.shape[1] - 1), axis=1)
    return np.where(survivors == NOBODY, NOBODY, taken)
