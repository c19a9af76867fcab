"""The settings of a calibration, and the images that they draw, with the half that each is in."""

from dataclasses import dataclass
from itertools import pairwise

from exporter.core.base.errors import CalibrationError
from exporter.core.base.settings import Count, Natural, Positive, Settings, option
from exporter.data.images import ImageFile, ImageFolder, ranked
from exporter.data.spread import set_apart

# Image counts at which max_images = auto looks at the overlap; it stops at the last of them in any case.
CHECKS = (64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class CalibrationSettings(Settings):
    """Settings for drawing images and for reducing their scores to one score per layer and patch."""

    max_images: Count | None = option(
        512,
        "Largest number of images for calibration, drawn at random by the seed. auto: 64 images, then twice as "
        "many, until both halves of them agree on 0.9 of the patches in every layer; at most 2048.",
        group="images",
    )
    gamma: Positive | None = option(
        None,
        "Number of classes per image whose relevance is computed; by default 6, or all if there are fewer; 1 for "
        "an embedding.",
        flag=False,
    )
    # Not a key of recipes: it follows from the scorer. Without it ACS alone is computed, by a forward pass.
    relevance: bool = True
    # float32 loses digits layer by layer towards the input.
    dtype: str = option(
        "float64", "Precision of the relevance.", ("float64", "float32"), flag=False
    )
    seed: Natural = option(
        0, "Seed of every draw of images to calibrate on.", flag=False
    )

    def classes_of(self, most: int, name: str) -> int:
        """Return how many classes per image are explained, of the `most` that the model `name` has."""
        if self.gamma is None:
            return min(6, most)
        if self.gamma > most:
            expected = f"at most {most}, the classes of {name}, or 1 for an embedding"
            raise CalibrationError("gamma", str(self.gamma), expected)
        return self.gamma


@dataclass(frozen=True)
class PlannedImage:
    """An image to read, and its half of the images, 0 or 1."""

    file: ImageFile
    half: int


def planned_images(
    images: ImageFolder, settings: CalibrationSettings
) -> list[PlannedImage]:
    """Return the images to read, each once, in the order of the folder, with "auto" between two checks."""
    rank = ranked(len(images.files), f"{settings.seed}")
    order = _in_steps(rank, settings)
    # Their order is random, so every prefix of it is split evenly.
    _, apart = set_apart(rank[: len(order)], 0.5)
    second_half = set(apart)
    return [
        PlannedImage(images.files[place], int(place in second_half)) for place in order
    ]


def _in_steps(rank: list[int], settings: CalibrationSettings) -> list[int]:
    """Return the places of the first images by rank. Those up to each check of "auto" come before any others."""
    if settings.max_images != "auto":
        return sorted(rank[: settings.max_images])
    order = []
    for start, end in pairwise((0, *CHECKS)):
        order += sorted(rank[start:end])
    return order
