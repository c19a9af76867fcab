"""A recipe with what its checkpoint says, and what a verb checks of both before it imports a library of models.

The import takes seconds; a mistake in the settings needs none.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.calibration.record import load_calibration
from exporter.core.base.errors import CheckpointError, RecipeError
from exporter.core.base.files import writable_folder
from exporter.core.base.targets import Target
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.policy import Need, Policy, check_needs
from exporter.core.schedule.prune import AMOUNTS, OF_STRETCHED, SCORING, Prune
from exporter.data.images import check_readable
from exporter.jobs.recipe import A_MODEL, Images, Recipe, needed
from exporter.models.identity import read_identity, weights_file
from exporter.models.request import ModelRequest
from exporter.processes import processes
from exporter.training.pruned_checkpoint import Pruning, read_pruning
from exporter.training.settings import FinetuneSettings

A_FOLDER = "a folder of images"
TRAIN_IMAGES = "labelled images to train on"
HELD_OUT_IMAGES = "labelled images that training does not see"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ResolvedRecipe:
    """A recipe with the name of its checkpoint's network, and what the checkpoint was trained with, if anything."""

    recipe: Recipe
    restored: Pruning | None = None

    def policy(self, *, dense: bool = False, refits: bool = False) -> Policy:
        """Return how it prunes; `dense` and `refits` as of `Recipe.policy`."""
        trained = None if self.restored is None else self.restored.schedule
        return self.recipe.policy(trained, dense=dense, refits=refits)

    @property
    def has_calibration(self) -> bool:
        """Whether a calibration is given."""
        restored = None if self.restored is None else self.restored.calibration
        return restored is not None or self.recipe.prune.calibration is not None

    @property
    def on_noise(self) -> bool:
        """Whether models are compared on noise: a checkpoint brings all else, and no images are given."""
        images = self.recipe.images
        without = images.images is None and images.eval_images is None
        return self.restored is not None and without

    def check_model(self) -> None:
        """Raise UserError unless a known model is named, and its checkpoint and its calibration are there."""
        model, calibration = self.recipe.model, self.recipe.prune.calibration
        needed(model.name or None, "--model", A_MODEL)
        check_weights(model.checkpoint)
        if model.checkpoint is None or read_identity(model.checkpoint) is None:
            from exporter.models.listed import check_name  # noqa: PLC0415  (`--help` needs no list)

            check_name(model.name)
        if calibration is not None:
            load_calibration(calibration)

    def check_images(self) -> None:
        """Raise ImageError unless the folders that are given can be read."""
        for place in (self.recipe.images.images, self.recipe.images.eval_images):
            if place is not None and not place.is_file():
                check_readable(place)

    def check_needs(self, policy: Policy | None, target: Target | None) -> None:
        """Raise RecipeError for the first need that nothing meets."""
        images = self.recipe.images.images is not None
        needs = needs_of(policy, target)
        check_needs(needs, images=images, calibration=self.has_calibration)


def resolved_recipe(recipe: Recipe, *, restore: bool = True) -> ResolvedRecipe:
    """Read what a recipe's checkpoint says; without `restore`, not how it was pruned."""
    restored = _restored(recipe, restore=restore)
    name = recipe.model.name or _recorded_name(recipe.model)
    named = replace(recipe, model=replace(recipe.model, name=name))
    return ResolvedRecipe(named, restored)


def needs_of(policy: Policy | None, target: Target | None) -> frozenset[Need]:
    """Return what pruning, and lowering for a target, need beside the model."""
    needs = frozenset[Need]() if policy is None else policy.needs
    return needs | {Need.RANGES} if target and target.takes_ranges else needs


def check_weights(path: Path | None) -> None:
    """Raise CheckpointError for a file that is not there."""
    if path is not None and not path.exists():
        raise CheckpointError(path, "no such file", "a checkpoint")


def check_compile(resolved: ResolvedRecipe, policy: Policy, out: Path) -> None:
    """Check that everything that a compilation needs is given, then the folder."""
    policy.check_amount("compile")
    images = resolved.recipe.images
    if resolved.on_noise:
        _check_noise(images)
    else:
        needed(images.eval_images or images.images, "--images", A_FOLDER)
    resolved.check_needs(policy, resolved.recipe.lower.row)
    resolved.check_images()
    writable_folder(out)


def recipes_of(recipe: Recipe, methods: Sequence[Method]) -> list[Recipe]:
    """Return the recipe of each method."""
    if len(set(methods)) < len(methods):
        raise RecipeError("--method", ",".join(methods), "each method once")
    if recipe.prune.schedule is not None:
        raise RecipeError(
            "--schedule",
            f"a file beside {len(methods)} methods",
            "one method: it has its own",
        )
    return [recipe.but(prune={"method": method}) for method in methods]


def check_finetune(
    resolved: ResolvedRecipe, policy: Policy, settings: FinetuneSettings, out: Path
) -> None:
    """Check the amount, the images, and where the weights are written."""
    weights_file(out)
    count = processes().count
    if settings.batch_size % count:
        expected = f"a multiple of the {count} processes"
        raise RecipeError("batch_size", str(settings.batch_size), expected)
    policy.check_amount("finetune")
    check_training_images(resolved)


def check_training_images(resolved: ResolvedRecipe) -> None:
    """Raise RecipeError unless there are images to train on, and others to measure on."""
    images = resolved.recipe.images
    needed(images.images, "--images", TRAIN_IMAGES)
    needed(images.eval_images, "--eval-images", HELD_OUT_IMAGES)
    resolved.check_images()


def _recorded_name(request: ModelRequest) -> str:
    if request.checkpoint is None:
        return ""
    check_weights(request.checkpoint)
    identity = read_identity(request.checkpoint)
    return identity.name if identity else ""


def _restored(recipe: Recipe, *, restore: bool) -> Pruning | None:
    """Return what the recipe's checkpoint was trained with; None if nothing, or if it is not to be restored."""
    file, prune, plain = recipe.model.checkpoint, recipe.prune, Prune()
    restored = None if file is None else read_pruning(file)
    if restored is None or not restore:
        return None
    trained = f"{restored.schedule.method}, rho {restored.schedule.rho or 'by layer'}"
    if recipe.model.recalibrate:
        logger.warning("%s is not pruned as it was trained, with %s", file, trained)
        return None
    for name in (*AMOUNTS, "calibration", "counts", *OF_STRETCHED, "refit", *SCORING):
        if name == "seed" or getattr(prune, name) == getattr(plain, name):
            continue
        raise RecipeError(
            name,
            f"a setting beside {file}, which was trained with {trained}",
            "none: a checkpoint is pruned as it was trained",
            "recalibrate = true in the table [model] of a recipe allows it",
        )
    return restored


def _check_noise(images: Images) -> None:
    """Warn that noise is measured on; RecipeError where a setting asks for what only images can tell."""
    if images.class_map is not None:
        raise RecipeError(
            "--class-map", "no images", "--images beside it, whose accuracy it asks for"
        )
    logger.warning(
        "no images: agreement with PyTorch and speed are measured on noise, not on photos; accuracy is not "
        "measured, and no picture is drawn (--images DIR)"
    )
