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
        "all", "all: every image once. paper: ten random batches of images.", ("all", "paper")
    )
    max_images: Count | None = option(
        512, "Largest number of images; none: all; auto: as many as stable scores need."
    )
    rounds: Positive = option(10, "paper: random batches.")
    images_per_round: Positive = option(192, "paper: images in each batch.")
    acs_images: Positive = option(500, "paper: images that ACS is taken from.")
    gamma: Positive | None = option(
        None, "Classes explained per image; by default 6, or all if there are fewer; 1 for an embedding."
    )
    normalize: str = option(
        "none",
        "Of the scores of one image, class and layer, before any mean: sum divides by their sum, minmax maps "
        "them to [0, 1], as the authors' code does (without its interpolation to 224x224 pixels).",
        NORMALIZE,
    )
    relevance: bool = option(True, "Without it ACS alone is computed, at the cost of a forward pass.")
    # float32 loses digits layer by layer towards the input.
    dtype: str = option("float64", "Precision of the relevance.", ("float64", "float32"))
    seed: Natural = option(0, "Seed of every draw.")

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
