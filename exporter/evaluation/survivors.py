"""Which patches survive each layer, in one form for STAR and a-STAR; and the multiply-adds that they cost."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile
from exporter.errors import ArtefactError
from exporter.schedule.macs import MacCount, mean_macs, schedule_macs
from exporter.tensor_names import count_name, keep_layers, keep_name

__all__ = ["NOBODY", "patches_left", "positions_by_layer", "survivors_of", "take", "useful_macs"]

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


def useful_macs(model: LoweredFile, reference: Mapping[str, Array]) -> MacCount:
    """Return the multiply-adds per image; under a-STAR, the mean of the useful ones over the reference's images.

    Raises:
        ArtefactError: The reference lacks the counts of the patches that a-STAR keeps.
    """
    spec, schedule = model.artefact.spec, model.artefact.schedule
    if not schedule.adaptive:
        return schedule_macs(spec, schedule)
    if not reference.keys() >= {count_name(layer) for layer in schedule.pruning_layers}:
        raise ArtefactError("the reference", "no survivors of a-STAR", f"those of {model.path.name}")
    return mean_macs(spec, patches_left(reference, spec.depth, spec.num_patches), schedule)
