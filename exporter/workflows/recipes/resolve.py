"""Split a recipe into the records that steps take, before any work."""

import logging
import os
from dataclasses import fields, replace
from typing import Any, TypeVar

from exporter.calibration.settings import CalibrationSettings
from exporter.data.class_map import is_order, read_class_map
from exporter.data.images import check_folder
from exporter.errors import CheckpointError, RecipeError
from exporter.formats.canonical_json import load_json
from exporter.models.identity import read_identity
from exporter.models.registry import ModelRequest, check_device
from exporter.processes import processes
from exporter.pruning.checkpoint import Pruning, read_pruning
from exporter.records import Schedule
from exporter.schedule.methods import scorer_named
from exporter.schedule.plan import ScheduleSettings
from exporter.settings import Settings, fields_of
from exporter.targets import target_named
from exporter.vocabulary import Method
from exporter.workflows.recipes.amount import Given, MacShare, Rates, Rho
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import AMOUNTS, Recipe
from exporter.workflows.recipes.requests import CalibrationSource, Images, Lowering, Measuring

__all__ = ["resolve"]

PartT = TypeVar("PartT", bound=Settings)

logger = logging.getLogger(__name__)


def resolve(recipe: Recipe, *, restore: bool = True, dense: bool = False) -> Job:
    """Return the records of a recipe.

    Args:
        recipe: The settings.
        restore: Whether a checkpoint is pruned as it was trained, if it says how.
        dense: Whether only the dense model is lowered, for a target of any method.

    Raises:
        ModelError: The target does not support the layout or the method, or this machine has no such device.
        RecipeError: Settings contradict each other.
        ImageError: The class map is none, even where the step reads no labels, or a folder cannot be read.
        ArtefactError: A schedule, or what a checkpoint says of itself, cannot be read.
    """
    check_device(recipe.device)
    images = _part(Images, recipe)
    if images.class_map is not None and not is_order(images.class_map):
        read_class_map(images.class_map, None)
    for place in (images.images, images.eval_images):
        if place is not None and os.path.isdir(place):  # noqa: PTH112  (that of Path may raise)
            check_folder(place)
    restored = _restored(recipe, restore=restore)
    number, shape = _number(recipe), Given(restored.schedule) if restored else _shape(recipe)
    scoring = _part(ScheduleSettings, shape.schedule if isinstance(shape, Given) else recipe)
    if scoring.method is None and recipe.calibration is not None:
        scoring = replace(scoring, method=Method.STAR)
    lowering = _lowering(recipe, None if dense else scoring.planned_by)
    return Job(
        model=_request(recipe),
        outputs=recipe.outputs,
        device=processes().device or recipe.device,
        images=images,
        calibration=CalibrationSource(
            recipe.calibration,
            recipe.interpolate,
            _calibration(recipe, scoring),
            restored.calibration if restored else None,
        ),
        scoring=scoring,
        amount=number or shape,
        shape=shape if number else None,
        lowering=lowering,
        measuring=_part(Measuring, recipe),
        trained=restored is not None,
    )


def _restored(recipe: Recipe, *, restore: bool) -> Pruning | None:
    """Return what the recipe's checkpoint was trained with; None if nothing, or if it is not to be restored.

    Raises:
        RecipeError: The recipe asks for another way to prune, but not to recalibrate.
    """
    restored = None if recipe.checkpoint is None else read_pruning(recipe.checkpoint)
    if restored is None or not restore:
        return None
    trained = f"{restored.schedule.method}, rho {restored.schedule.rho or 'by layer'}"
    if recipe.recalibrate:
        logger.warning("%s is not pruned as it was trained, with %s", recipe.checkpoint, trained)
        return None
    names = (*AMOUNTS, "calibration", *(each.name for each in fields(ScheduleSettings)))
    plain = Recipe()
    others = [name for name in names if getattr(recipe, name) != getattr(plain, name) and name != "seed"]
    if others:
        raise RecipeError(
            f"--{others[0].replace('_', '-')}" if fields_of(Recipe)[others[0]].has_flag else others[0],
            f"a setting beside {recipe.checkpoint}, which was trained with {trained}",
            "none: a checkpoint is pruned as it was trained",
            "recalibrate = true in a recipe allows it",
        )
    return restored


def _request(recipe: Recipe) -> ModelRequest:
    return ModelRequest(
        name=recipe.model or _own_name(recipe),
        checkpoint=recipe.checkpoint,
        num_classes=recipe.num_classes,
        model_kwargs=recipe.model_kwargs,
        preprocessing=recipe.preprocess,
        text_embeddings=recipe.text_embeddings,
    )


def _own_name(recipe: Recipe) -> str:
    """Return the model's name according to its checkpoint, "" where it has none.

    Raises:
        CheckpointError: There is no such file.
    """
    if recipe.checkpoint is not None and not recipe.checkpoint.exists():
        raise CheckpointError(str(recipe.checkpoint), "no such file", "a checkpoint")
    identity = None if recipe.checkpoint is None else read_identity(recipe.checkpoint)
    return identity.name if identity else ""


def _lowering(recipe: Recipe, method: Method | None) -> Lowering:
    """Return how models are lowered; ModelError or RecipeError where target, method and layout do not fit.

    Without a method, that is how the dense model is lowered.
    """
    target = target_named(recipe.target)
    if method is not None:
        target.check_method(method)
    layout = target.layout(recipe.layout)
    if recipe.layout is not None and (method is None or not method.counts_vary):
        got = f"{recipe.layout} for {method or 'a dense model'}"
        expected = "none: its token counts are those of the graph"
        raise RecipeError("layout", got, expected, "a-star has layouts")
    return Lowering(target, layout, recipe.input_kind)


def _number(recipe: Recipe) -> Rho | MacShare | None:
    """Return how much to prune as a number; `Recipe.check` refuses two."""
    if recipe.mac_reduction is not None:
        return MacShare(recipe.mac_reduction)
    return None if recipe.rho is None else Rho(recipe.rho)


def _shape(recipe: Recipe) -> Rates | Given | None:
    """Return the rates of the recipe; `Recipe.check` refuses two."""
    if recipe.schedule is not None:
        return Given(load_json(Schedule, recipe.schedule))
    return Rates(recipe.rates) if recipe.rates else None


def _calibration(recipe: Recipe, scoring: ScheduleSettings) -> CalibrationSettings:
    return CalibrationSettings(
        protocol=recipe.protocol,
        max_images=recipe.max_images,
        gamma=recipe.gamma,
        normalize=recipe.normalize,
        relevance=scorer_named(scoring.scored_by).calibrated,
        dtype=recipe.relevance_dtype,
        seed=recipe.seed,
    )


def _part(kind: type[PartT], whole: Any) -> PartT:
    """Make a smaller record from the fields of `whole` with the same names."""
    return kind(**{name: getattr(whole, name) for name in fields_of(kind) if hasattr(whole, name)})
