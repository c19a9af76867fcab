"""From an amount to a schedule: of a rho, or of the one that saves a share of the MACs or reaches a speed-up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.data.images import list_images, sample
from exporter.errors import ScheduleError
from exporter.evaluation.parity.reference import patches_left_of
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import dense_macs, mean_macs, pruned_macs
from exporter.schedule.plan import ScheduleSettings, check_fits, manual_schedule, star_schedule
from exporter.schedule.solve import rho_for
from exporter.vocabulary import InputKind, Method
from exporter.workflows.amount import Amount, Given, MacShare, Rates, Rho, Speedup
from exporter.workflows.recipe import needed
from exporter.workflows.requests import Images

__all__ = ["IMAGE_BISECTIONS", "Planner", "measured_macs", "plan"]

# Every one runs the model over the images; rho is then known to 1/4096.
IMAGE_BISECTIONS = 12


@dataclass(frozen=True)
class Planner:
    """What all schedules of a model share: its shape, how patches are scored, ACS, and the scores' digest.

    `acs` has one value a layer; schedules that do not follow from rho need none.
    """

    spec: ModelSpec
    scoring: ScheduleSettings
    acs: Sequence[float] = ()
    inter_sha256: str = ""

    @classmethod
    def of(cls, spec: ModelSpec, scoring: ScheduleSettings, calibration: Calibration | None) -> "Planner":
        """With what a calibration found, where there is one."""
        if calibration is None:
            return cls(spec, scoring)
        return cls(spec, scoring, calibration.acs.tolist(), calibration.inter_sha256)

    def of_rho(self, rho: float) -> Schedule:
        """STAR's or a-STAR's schedule for a rho."""
        return star_schedule(self.spec, self.acs, rho, self.scoring, self.inter_sha256)


def plan(
    amount: Amount,
    planner: Planner,
    *,
    image_macs: Callable[[Schedule], float] | None = None,
    search: Callable[[Speedup], Schedule] | None = None,
) -> Schedule:
    """The schedule of an amount.

    Args:
        amount: How much to prune.
        planner: Of which model, and how patches are scored.
        image_macs: What an image costs under an a-STAR schedule, in the mean; see `measured_macs`.
        search: Finds the schedule of a speed-up; see `exporter.workflows.search`.

    Raises:
        ScheduleError: The amount is out of reach, or the schedule is another model's; or it takes images or
            measurements to find, and there are none.
    """
    if isinstance(amount, Rho):
        return planner.of_rho(amount.rho)
    if isinstance(amount, MacShare):
        return _saving(amount, planner, image_macs)
    if isinstance(amount, Rates):
        return manual_schedule(planner.spec, amount.rates, planner.scoring, planner.inter_sha256)
    if isinstance(amount, Given):
        check_fits(amount.schedule, planner.spec)
        return amount.schedule
    if search is None:
        raise ScheduleError("speedup", "no measurements", "a model to measure", "use search or compile")
    return search(amount)


def _saving(amount: MacShare, planner: Planner, image_macs: Callable[[Schedule], float] | None) -> Schedule:
    target = (1.0 - amount.mac_reduction) * dense_macs(planner.spec).total
    if planner.scoring.method == Method.STAR:
        return rho_for(planner.of_rho, partial(_macs, planner.spec), target)
    if image_macs is None:
        raise ScheduleError("mac_reduction", "a-star without images", "images to count on", "use compile")
    return rho_for(planner.of_rho, image_macs, target, IMAGE_BISECTIONS)


def _macs(spec: ModelSpec, schedule: Schedule) -> float:
    return pruned_macs(spec, schedule.keep, reduce=schedule.reduce).total


def measured_macs(
    vit: PrunableViT, images: Images, calibration: Calibration | None, batch: int
) -> Callable[[Schedule], float]:
    """What an image of the calibration's costs under a schedule of a-STAR: useful MACs, in the mean."""
    folder = list_images(needed(images.images, "--images", "a folder of images"))
    files = sample(folder, images.check_images, images.seed).files
    pixels = first_images(files, vit.spec.preprocessing, InputKind.FLOAT32, images.check_images)
    inter = None if calibration is None else calibration.inter

    def cost(schedule: Schedule) -> float:
        pruned = PrunedViT(vit, schedule, inter)
        return mean_macs(vit.spec, patches_left_of(pruned, pixels, InputKind.FLOAT32, batch)).total

    return cost
