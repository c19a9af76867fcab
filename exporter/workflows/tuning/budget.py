"""How the minutes of a search are spent: what comes last is estimated from what was measured, and reserved."""

from dataclasses import dataclass

from exporter.errors import RecipeError

__all__ = ["Budget"]

# The share of the time that is left in which finalists are timed, if there are to be several.
TIMING = 0.4
# The compilation of the choice measures both models on at most so many images, and lowers and times so many models.
COMPILED_IMAGES, COMPILED_MODELS = 1000, 3
# So many candidates of low precision are measured on their runtime.
LOW = 2


@dataclass(frozen=True)
class Budget:
    """Seconds of a search, and what its measurements take.

    Args:
        total_s: All of them.
        spent_s: Those that the first measurements took, and the calibration before them.
        image_s: Accuracy of one image in PyTorch.
        model_s: To lower one model, and to time it.
        targets: On how many the finalists are timed.
        final_images: Images of the final half.
        wanted: Finalists, if there is time.
        low_precision: Whether a target has lower precision than fp32.
    """

    total_s: float
    spent_s: float
    image_s: float
    model_s: float
    targets: int
    final_images: int
    wanted: int
    low_precision: bool

    @property
    def finalists(self) -> int:
        """How many candidates there is time for to time, beside as many along the front; at least one."""
        left_s = self.points_until_s - self.spent_s
        models = TIMING * left_s / (self.model_s * self.targets)
        return max(1, min(self.wanted, int((models - 1) / 2)))

    @property
    def timing_s(self) -> float:
        """The time to time the finalists, as many along the front, and the unpruned model, on all targets."""
        return (1 + 2 * self.finalists) * self.targets * self.model_s

    @property
    def judged_s(self) -> float:
        """The time to judge the choice on the final half, and to compile it."""
        return 2 * (self.final_images + COMPILED_IMAGES) * self.image_s + COMPILED_MODELS * self.model_s

    @property
    def points_until_s(self) -> float:
        """How much may be spent until the choice is made."""
        return self.total_s - self.judged_s

    def accuracy_until_s(self, images: int = 0) -> float:
        """Return how much may be spent until accuracy is known on so many images; low precision comes after."""
        low_s = LOW * images * self.image_s if self.low_precision else 0.0
        return self.points_until_s - self.timing_s - low_s

    def check(self, images: int) -> None:
        """Check that there is time for one candidate on so many images.

        Raises:
            RecipeError: There is not; the message says which time would do.
        """
        missing_s = self.spent_s + images * self.image_s - self.accuracy_until_s(images)
        if missing_s > 0:
            expected = f"at least {(self.total_s + missing_s) / 60:.2g} for one candidate"
            raise RecipeError("minutes", f"{self.total_s / 60:g}", expected)
