"""The recipes that a search opens, and what it checks of them before it imports a library of models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.core.base.errors import CheckpointError, RecipeError
from exporter.core.base.files import PathLike
from exporter.core.schedule.policy import Policy
from exporter.engines.choice import targets_here
from exporter.jobs.network import Network
from exporter.jobs.recipe import Recipe, needed
from exporter.tuning.choice import TuneSettings
from exporter.tuning.ways import AXES, OWN

# What a recipe leaves open where it compiles a choice, and what another checkpoint says itself.
FREE: Mapping[str, Any] = dict.fromkeys((*AXES, "calibration", "rho", "mac_reduction"))
OWN_VALUES: Mapping[str, Any] = {
    "num_classes": None,
    "name": "",
    "model_kwargs": {},
    "preprocess": {},
    "recalibrate": False,
}

EVAL_IMAGES = "images to measure on, which calibration does not see"


def recipes_with(recipe: Recipe, weights: Sequence[PathLike]) -> dict[str, Recipe]:
    """Return the recipes of the model and of other checkpoints, which say themselves which networks they are."""
    files = [Path(path) for path in weights]
    recipes = {
        path.stem: recipe.but(prune=FREE, model={**OWN_VALUES, "checkpoint": path})
        for path in files
    }
    if len(recipes) < len(files):
        names = ", ".join(path.stem for path in files)
        raise RecipeError("weights", names, "files of different names")
    return {OWN: recipe, **recipes}


def check_named(network: Network) -> None:
    """Raise CheckpointError unless another checkpoint says of which network it is."""
    model = network.recipe.model
    if not model.name:
        got = "weights that do not say of which network they are"
        expected = "a file that star-export finetune or star-export depth wrote"
        raise CheckpointError(str(model.checkpoint), got, expected)


def check_search(network: Network, policy: Policy, settings: TuneSettings) -> None:
    """Check that speeds are measured, that images are given, and that no amount is but one that a search scales."""
    recipe = network.recipe
    needed(recipe.measure.rounds or None, "--rounds", "at least 5: speeds are measured")
    needed(recipe.images.eval_images, "--eval-images", EVAL_IMAGES)
    if policy.amount.has_rates:
        expected = "rho, mac_reduction, or no amount: it is searched for"
        hint = "--weights FILE tries a fine-tuned checkpoint as it was trained"
        raise RecipeError("tune", "rates", expected, hint)
    targets = targets_here(settings.runtime, settings.target)
    ranged = [target.name for target in targets if target.takes_ranges]
    if ranged:
        expected = f"a folder of images, for the activation ranges of {ranged[0]}; or --runtime onnxruntime"
        needed(recipe.images.images, "--images", expected)
    network.check_images()
