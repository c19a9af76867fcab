"""How far a calibration is from settled: whether its two halves choose the same patches.

The images are split at random into two disjoint halves, and each half has its own inter-layer scores. A layer's
overlap is the share |A∩B| / |A| of the better half A of the patches by one that is in the better half B by the
other: 1 where both agree, about 0.5 by chance. It understates the calibration, which has twice as many images as
either half (Spearman, 1910, and Brown, 1910, give the correction for correlations; none is applied here).
"""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHECKS", "ENOUGH", "better_half_overlap", "is_settled", "unsettled", "warn_where_unsettled"]

# The overlap from which a layer's scores count as settled.
ENOUGH = 0.9

# Image counts at which max_images = auto looks at the overlap; it stops at the last of them in any case.
CHECKS = (64, 128, 256, 512, 1024, 2048)

logger = logging.getLogger(__name__)


def better_half_overlap(halves: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return each layer's overlap of two tables of scores; None where either half has no score at all.

    Args:
        halves: Sums or means over the images of each half, [2, layers, patches]; a row's scale does not matter.
    """
    if not halves.any(axis=(1, 2)).all():
        return None
    patches = halves.shape[-1]
    best = np.argsort(-halves, axis=-1, kind="stable")[..., : (patches + 1) // 2]
    marked = np.zeros(halves.shape, bool)
    np.put_along_axis(marked, best, values=True, axis=-1)
    return marked.all(0).sum(-1) / best.shape[-1]


def unsettled(overlap: NDArray[np.float64], layers: Sequence[int]) -> dict[int, float]:
    """Return the overlap of those of the 1-based layers whose scores are not settled."""
    return {layer: float(overlap[layer - 1]) for layer in layers if overlap[layer - 1] < ENOUGH}


def is_settled(halves: NDArray[np.float64]) -> bool:
    """Whether the scores of every layer are settled."""
    overlap = better_half_overlap(halves)
    return overlap is not None and bool(overlap.min() >= ENOUGH)


def warn_where_unsettled(overlap: NDArray[np.float64] | None, layers: Sequence[int], images: int) -> None:
    """Log one line if the scores of any of these 1-based layers are not settled."""
    found = {} if overlap is None else unsettled(overlap, layers)
    if found:
        worst = min(found, key=lambda layer: found[layer])
        logger.warning(
            "calibration: the two halves of the images agree on less than %g of the best patches in layer%s %s "
            "(%.2f in layer %d) with %d images; use more images for more stable scores",
            ENOUGH, "s" * (len(found) > 1), ", ".join(map(str, found)), found[worst], worst, images,
        )  # fmt: skip
