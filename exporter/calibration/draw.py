"""Draw the images of a calibration, and assign them to its means and halves."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from exporter.calibration.agreement import CHECKS
from exporter.calibration.settings import CalibrationSettings
from exporter.data.images import ImageFile, ImageFolder, draw, ranked
from exporter.errors import CalibrationError

__all__ = ["PlannedImage", "count_rounds", "plan"]


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
