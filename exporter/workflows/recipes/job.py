"""A recipe as the records that steps take, and what follows from them together."""

from dataclasses import dataclass

from exporter.errors import RecipeError
from exporter.models.registry import ModelRequest
from exporter.schedule.plan import ScheduleSettings
from exporter.workflows.recipes.amount import Amount, Given, Rates
from exporter.workflows.recipes.recipe import A_MODEL, AMOUNTS, needed
from exporter.workflows.recipes.requests import CalibrationSource, Images, Lowering, Measuring

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """A recipe as the records that steps take.

    `outputs` are names (`exporter.models.outputs`), none for the model's own. `amount` is None if the recipe sets
    no amount to prune. `shape` has the rates that a number scales; None: they follow from the method. `trained`:
    the model is pruned as its checkpoint was trained.
    """

    model: ModelRequest
    outputs: tuple[str, ...]
    device: str
    images: Images
    calibration: CalibrationSource
    scoring: ScheduleSettings
    amount: Amount | None
    shape: Rates | Given | None
    lowering: Lowering
    measuring: Measuring
    trained: bool = False

    @property
    def on_noise(self) -> bool:
        """Whether models are compared on noise: a checkpoint brings all else, and no images are given."""
        return self.trained and self.images.images is None and self.images.eval_images is None

    @property
    def follows_acs(self) -> bool:
        """Whether the rates of the schedule follow from ACS."""
        from_rho = not isinstance(self.amount, Given | Rates)
        return from_rho and self.shape is None and self.scoring.follows_acs

    @property
    def reads_calibration(self) -> bool:
        """Whether ACS or inter-layer scores are needed, or a calibration is given."""
        return self.follows_acs or self.calibration.settings.relevance or self.calibration.exists

    def check_named(self) -> None:
        """Raise RecipeError where no model is named."""
        needed(self.model.name or None, "--model", A_MODEL)

    def check_calibrated(self) -> None:
        """Raise RecipeError where a calibration is needed and none is given."""
        if self.reads_calibration:
            needed(
                self.calibration.exists or None, "--calibration", "the file that star-export calibrate wrote"
            )

    def check_ranges(self) -> None:
        """Raise RecipeError where INT8 needs images for its activation ranges and none are given."""
        if self.lowering.target.takes_ranges:
            expected = f"a folder of images, for the activation ranges of {self.lowering.target.name}"
            needed(self.images.images, "--images", expected)

    def needed_amount(self, verb: str) -> Amount:
        """Return how much to prune; RecipeError if the recipe does not say."""
        if self.amount is None:
            raise RecipeError(verb, "no amount to prune", f"one of {', '.join(AMOUNTS)}")
        return self.amount
