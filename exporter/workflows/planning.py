"""From a recipe to a schedule: how patches are scored, and rho or what it takes to save a share of the work."""

from collections.abc import Callable, Sequence

from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.data.images import list_images, sample
from exporter.errors import ScheduleError
from exporter.evaluation.parity.reference import patches_left_of
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import dense_macs, mean_macs, pruned_macs
from exporter.schedule.plan import ScheduleSettings, star_schedule
from exporter.schedule.solve import rho_for
from exporter.workflows.recipe import Recipe, needed

__all__ = ["IMAGE_BISECTIONS", "measured_macs", "plan", "schedule_settings"]

# Every one runs the model over the images; rho is then known to 1/4096.
IMAGE_BISECTIONS = 12


def schedule_settings(recipe: Recipe, spec: ModelSpec) -> ScheduleSettings:
    """How the recipe scores patches; alpha is the model's own where the recipe gives none.

    Raises:
        ScheduleError: alpha is out of range.
    """
    alpha = spec.default_alpha if recipe.alpha is None else recipe.alpha
    return ScheduleSettings(recipe.scorer, alpha, recipe.anchors, recipe.seed, recipe.round_to, recipe.method)


def plan(
    recipe: Recipe,
    spec: ModelSpec,
    acs: Sequence[float],
    inter_sha256: str = "",
    mean_macs: Callable[[Schedule], float] | None = None,
) -> Schedule:
    """The schedule for the recipe's rho, or for the share of MACs that it wants to save.

    Args:
        recipe: Says which, and how patches are scored.
        spec: The model's shape.
        acs: One value a layer.
        inter_sha256: Names the inter-layer scores that the schedule is for.
        mean_macs: What an image costs under an a-STAR schedule, in the mean; see `measured_macs`.

    Raises:
        ScheduleError: Neither is given, or one is out of range or out of reach; or a share is to be saved by
            a-STAR, whose MACs follow the images, without any.
    """
    settings = schedule_settings(recipe, spec)

    def of_rho(rho: float) -> Schedule:
        return star_schedule(spec, acs, rho, settings, inter_sha256)

    def cost(schedule: Schedule) -> float:
        return pruned_macs(spec, schedule.keep).total

    if recipe.mac_reduction is not None:
        target = (1.0 - recipe.mac_reduction) * dense_macs(spec).total
        if recipe.method == "star":
            return rho_for(of_rho, cost, target)
        if mean_macs is None:
            raise ScheduleError("mac_reduction", "a-star without images", "images to count on", "use compile")
        return rho_for(of_rho, mean_macs, target, IMAGE_BISECTIONS)
    if recipe.rho is None:
        raise ScheduleError("rho", "nothing", "a value in (0, 1]", "or give --mac-reduction")
    return of_rho(recipe.rho)


def measured_macs(vit: PrunableViT, recipe: Recipe, calibration: Calibration) -> Callable[[Schedule], float]:
    """What an image of the calibration's costs under a schedule of a-STAR: useful MACs, in the mean."""
    folder = list_images(needed(recipe.images, "--images", "a folder of images"))
    files = sample(folder, recipe.check_images, recipe.seed).files
    images = first_images(files, vit.spec.preprocessing, "float32", recipe.check_images)

    def cost(schedule: Schedule) -> float:
        pruned = PrunedViT(vit, schedule, calibration.inter)
        return mean_macs(vit.spec, patches_left_of(pruned, images, "float32", recipe.batch)).total

    return cost
