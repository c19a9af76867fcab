"""What packed tokens become, image by image; and choices to try it on."""

from typing import NamedTuple

import numpy as np

__all__ = ["drawn_choice", "packed"]

Array = np.ndarray


class Packed(NamedTuple):
    rows: Array
    live: Array
    slots: Array
    places: Array


def drawn_choice(rng: np.random.Generator, prefix: int) -> tuple[Array, Array, Array]:
    """Slots of up to four images, the survivors of each, ascending and padded with zeros, and their number."""
    batch, patches = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    count = rng.integers(1, patches + 1, batch)
    index = np.zeros((batch, count.max()), np.int64)
    for image, kept in enumerate(count):
        index[image, :kept] = np.sort(rng.permutation(patches)[:kept])
    return rng.integers(0, 99, (batch, prefix + patches)), index, count


def packed(slots: Array, index: Array, count: Array, prefix: int) -> Packed:
    """The same as `pack_tokens`."""
    rows: list[int] = []
    after, places, width = (
        np.zeros((len(count), prefix + index.shape[1]), np.int64),
        [],
        prefix + index.shape[1],
    )
    for image, kept in enumerate(count):
        first = len(rows)
        tokens = [*range(prefix), *(prefix + index[image, :kept])]
        rows += slots[image, tokens].tolist()
        places += [image * width + place for place in range(len(tokens))]
        after[image] = [first + min(place, len(tokens) - 1) for place in range(width)]
    live = np.arange(width) < prefix + count[:, None]
    return Packed(np.array(rows), live, after, np.array(places))
