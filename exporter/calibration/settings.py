"""The settings of a calibration, and the images that they draw, with the means and the half that each is in."""

from dataclasses import dataclass
from itertools import pairwise

from exporter.data.images import ImageFile, ImageFolder, draw, ranked, set_apart
from exporter.errors import CalibrationError, RecipeError
from exporter.settings.fields import Count, Natural, Positive, Settings, option

# Image counts at which max_images = auto looks at the overlap; it stops at the last of them in any case.
CHECKS = (64, 128, 256, 512, 1024, 2048)

# How the scores of one image, class and layer are scaled before any mean.
NORMALIZE = ("none", "sum", "minmax")


@dataclass(frozen=True)
class CalibrationSettings(Settings):
    """Settings for drawing images and for reducing their scores to one score per layer and patch.

    The protocol "all" reads every image once. "paper" averages over `rounds` random batches of
    `images_per_round` images and computes ACS on `acs_images` random images (STAR, Algorithm 2, Table 6).
    """

    protocol: str = option(
        "all",
        "all: every image once. paper: ten random batches of images.",
        ("all", "paper"),
        flag=False,
    )
    max_images: Count | None = option(
        512,
        "Largest number of images for calibration, drawn at random by the seed. auto: 64 images, then twice as "
        "many, until both halves of them agree on 0.9 of the patches in every layer; at most 2048.",
        group="images",
    )
    rounds: Positive = option(10, "paper: random batches.", flag=False)
    images_per_round: Positive = option(192, "paper: images in each batch.", flag=False)
    acs_images: Positive = option(500, "paper: images that ACS is taken from.", flag=False)
    gamma: Positive | None = option(
        None,
        "Number of classes per image whose relevance is computed; by default 6, or all if there are fewer; 1 for "
        "an embedding.",
        flag=False,
    )
    normalize: str = option(
        "none",
        "Scaling of the relevance of each image and class before averaging: none, sum (to a sum of 1), or minmax "
        "(to [0, 1]).",
        NORMALIZE,
        flag=False,
    )
    # Not a key of recipes: it follows from the scorer. Without it ACS alone is computed, by a forward pass.
    relevance: bool = True
    # float32 loses digits layer by layer towards the input.
    dtype: str = option(
        "float64", "Precision of the relevance.", ("float64", "float32"), flag=False
    )
    seed: Natural = option(0, "Seed of every draw of images to calibrate on.", flag=False)

    def check(self) -> None:
        """Raise RecipeError if "auto" is combined with the protocol that sets the number itself."""
        if self.max_images == "auto" and self.protocol == "paper":
            raise RecipeError(
                "max_images",
                "auto for protocol paper",
                "a number",
                "the protocol sets the number itself",
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
    """An image to read: the rounds whose mean includes it, whether ACS includes it, and its half, 0 or 1."""

    file: ImageFile
    rounds: tuple[int, ...]
    in_acs: bool
    half: int


def planned_images(images: ImageFolder, settings: CalibrationSettings) -> list[PlannedImage]:
    """Return the images to read, each once, in the order of the folder, with "auto" between two checks."""
    total = len(images.files)
    rank = ranked(total, f"{settings.seed}")
    if settings.protocol == "paper":
        rounds, in_acs = _paper(total, settings)
        order = sorted(rounds.keys() | in_acs)
    else:
        order = _in_steps(rank, settings)
        rounds, in_acs = dict.fromkeys(order, (0,)), set(order)
    # Their order is random, so every prefix of it is split evenly.
    _, apart = set_apart((place for place in rank if place in rounds), 0.5)
    second_half = set(apart)
    return [
        PlannedImage(
            images.files[place],
            rounds.get(place, ()),
            place in in_acs,
            int(place in second_half),
        )
        for place in order
    ]


def _in_steps(rank: list[int], settings: CalibrationSettings) -> list[int]:
    """Return the places of the first images by rank. Those up to each check of "auto" come before any other."""
    if settings.max_images != "auto":
        return sorted(rank[: settings.max_images])
    return [place for start, end in pairwise((0, *CHECKS)) for place in sorted(rank[start:end])]


def _paper(
    total: int, settings: CalibrationSettings
) -> tuple[dict[int, tuple[int, ...]], set[int]]:
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


def count_rounds(settings: CalibrationSettings) -> int:
    """Return the number of rounds over which inter-layer scores are summed."""
    if not settings.relevance:
        return 0
    return settings.rounds if settings.protocol == "paper" else 1
