"""Draw the images of a calibration, assign them to its means and halves, and say how far the halves agree.

The images are split at random into two disjoint halves, and each half has its own inter-layer scores. A layer's
overlap is the share |A∩B| / |A| of the better half A of the patches by one that is in the better half B by the
other: 1 where both agree, about 0.5 by chance. It understates the calibration, which has twice as many images as
either half (Spearman, 1910, and Brown, 1910, give the correction for correlations; none is applied here).
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from exporter.calibration.settings import CalibrationSettings
from exporter.data.images import ImageFile, ImageFolder, draw, ranked
from exporter.errors import CalibrationError

__all__ = [
    "CHECKS",
    "ENOUGH",
    "PlannedImage",
    "better_half_overlap",
    "count_rounds",
    "is_settled",
    "plan",
    "warn_where_unsettled",
]

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


def is_settled(halves: NDArray[np.float64]) -> bool:
    """Whether the scores of every layer are settled."""
    overlap = better_half_overlap(halves)
    return overlap is not None and bool(overlap.min() >= ENOUGH)


def warn_where_unsettled(overlap: NDArray[np.float64] | None, layers: Sequence[int], images: int) -> None:
    """Log one line if the scores of any of these 1-based layers are not settled."""
    shares = {} if overlap is None else {layer: float(overlap[layer - 1]) for layer in layers}
    found = {layer: share for layer, share in shares.items() if share < ENOUGH}
    if found:
        worst = min(found, key=lambda layer: found[layer])
        logger.warning(
            "calibration: the two halves of the images agree on less than %g of the best patches in layer%s %s "
            "(%.2f in layer %d) with %d images; use more images for more stable scores",
            ENOUGH, "s" * (len(found) > 1), ", ".join(map(str, found)), found[worst], worst, images,
        )  # fmt: skip


@dataclass(frozen=True)
class PlannedImage:
    """An image to read: the rounds whose mean includes it, whether ACS includes it, and its half, 0 or 1."""

    file: ImageFile
    rounds: tuple[int, ...]
    in_acs: bool
    half: int


def plan(images: ImageFolder, settings: CalibrationSettings) -> list[PlannedImage]:
    """Return the images to read, each once, in the folder's order; with "auto", in that order between two checks.

    Raises:
        CalibrationError: There are fewer images than one round of the paper's protocol draws.
    """
    total = len(images.files)
    rank = ranked(total, f"{settings.seed}")
    if settings.protocol == "paper":
        rounds, in_acs = _paper(total, settings)
        order = sorted(rounds.keys() | in_acs)
    else:
        order = _in_steps(rank, settings)
        rounds, in_acs = dict.fromkeys(order, (0,)), set(order)
    half = _halves(place for place in rank if place in rounds)
    return [
        PlannedImage(images.files[place], rounds.get(place, ()), place in in_acs, half.get(place, 0))
        for place in order
    ]


def _in_steps(rank: list[int], settings: CalibrationSettings) -> list[int]:
    """Return the places of the first images by rank. Those up to each check of "auto" come before any other."""
    if settings.max_images != "auto":
        return sorted(rank[: settings.max_images])
    return [place for start, end in pairwise((0, *CHECKS)) for place in sorted(rank[start:end])]


def _paper(total: int, settings: CalibrationSettings) -> tuple[dict[int, tuple[int, ...]], set[int]]:
    """Return the rounds of each place that has any, and the places that ACS is taken from."""
    if settings.relevance and total < settings.images_per_round:
        raise CalibrationError(
            "images",
            f"{total}",
            f"{settings.images_per_round} for a round",
            "lower images_per_round, or use protocol all",
        )
    rounds: dict[int, tuple[int, ...]] = {}
    for index in range(count_rounds(settings)):
        for place in draw(total, settings.images_per_round, f"{settings.seed}/round {index}"):
            rounds[place] = (*rounds.get(place, ()), index)
    return rounds, set(draw(total, settings.acs_images, f"{settings.seed}/acs"))


def _halves(places: Iterable[int]) -> dict[int, int]:
    """Split places into two halves. Their order is random, and they alternate, so every prefix is split evenly."""
    return {place: index % 2 for index, place in enumerate(places)}


def count_rounds(settings: CalibrationSettings) -> int:
    """Return the number of rounds over which inter-layer scores are summed."""
    if not settings.relevance:
        return 0
    return settings.rounds if settings.protocol == "paper" else 1
