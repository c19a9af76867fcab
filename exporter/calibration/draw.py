"""Draw the images of a calibration, and assign them to its means."""

from dataclasses import dataclass

from exporter.calibration.record import CalibrationSettings
from exporter.data.images import ImageFile, ImageFolder, draw, sample
from exporter.errors import CalibrationError

__all__ = ["PlannedImage", "count_rounds", "plan"]


@dataclass(frozen=True)
class PlannedImage:
    """An image to read: the rounds whose mean includes it, and whether ACS includes it."""

    file: ImageFile
    rounds: tuple[int, ...]
    in_acs: bool


def plan(images: ImageFolder, settings: CalibrationSettings) -> list[PlannedImage]:
    """Return the images to read, each once, in the folder's order.

    Raises:
        CalibrationError: There are fewer images than one round of the paper's protocol draws.
    """
    if settings.protocol == "all":
        drawn = sample(images, settings.max_images, settings.seed)
        return [PlannedImage(file, (0,), in_acs=True) for file in drawn.files]
    total = len(images.files)
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
    in_acs = set(draw(total, settings.acs_images, f"{settings.seed}/acs"))
    return [
        PlannedImage(images.files[place], rounds.get(place, ()), in_acs=place in in_acs)
        for place in sorted(rounds.keys() | in_acs)
    ]


def count_rounds(settings: CalibrationSettings) -> int:
    """Return the number of rounds over which inter-layer scores are summed."""
    if not settings.relevance:
        return 0
    return settings.rounds if settings.protocol == "paper" else 1
