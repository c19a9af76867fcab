"""The settings of a calibration."""

from dataclasses import dataclass

from exporter.errors import CalibrationError, RecipeError
from exporter.settings import Count, Natural, Positive, Settings, option

__all__ = ["NORMALIZE", "CalibrationSettings"]

# How the scores of one image, class and layer are scaled before any mean.
NORMALIZE = ("none", "sum", "minmax")


@dataclass(frozen=True)
class CalibrationSettings(Settings):
    """Settings for drawing images and for reducing their scores to one score per layer and patch.

    The protocol "all" reads every image once. "paper" averages over `rounds` random batches of
    `images_per_round` images and computes ACS on `acs_images` random images (STAR, Algorithm 2, Table 6).
    """

    protocol: str = option(
        "all", "all: every image once. paper: ten random batches of images.", ("all", "paper"), flag=False
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
    dtype: str = option("float64", "Precision of the relevance.", ("float64", "float32"), flag=False)
    seed: Natural = option(0, "Seed of every draw of images to calibrate on.", flag=False)

    def check(self) -> None:
        """Raise RecipeError if "auto" is combined with the protocol that sets the number itself."""
        if self.max_images == "auto" and self.protocol == "paper":
            raise RecipeError(
                "max_images", "auto for protocol paper", "a number", "the protocol sets the number itself"
            )

    def classes_of(self, most: int, name: str) -> int:
        """Return how many classes per image are explained, of the `most` that the model `name` has.

        Raises:
            CalibrationError: gamma is more than that.
        """
        if self.gamma is None:
            return min(6, most)
        if self.gamma > most:
            expected = f"at most {most}, the classes of {name}, or 1 for an embedding"
            raise CalibrationError("gamma", str(self.gamma), expected)
        return self.gamma
