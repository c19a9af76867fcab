"""The jobs of a search: of the recipe's model, and of other checkpoints of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.errors import RecipeError
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.tuning.axes import OWN

__all__ = ["jobs_of"]

# A checkpoint has its own: what pins an axis of the search, and what names the model.
OWN_VALUES: dict[str, Any] = {
    "calibration": None,
    "method": None,
    "scorer": None,
    "reduce": None,
    "alpha": None,
    "rho": None,
    "mac_reduction": None,
    "model": None,
    "num_classes": None,
    "model_kwargs": {},
    "preprocess": {},
    "recalibrate": False,
}


def jobs_of(recipe: Recipe, weights: Sequence[Path]) -> dict[str, Job]:
    """Return the jobs of the model and of other checkpoints, which say themselves which networks they are.

    Raises:
        RecipeError: Two checkpoints have one name.
    """
    plain = replace(recipe, **OWN_VALUES)
    others = {path.stem: resolve(replace(plain, checkpoint=path)) for path in weights}
    if len(others) < len(weights):
        raise RecipeError("weights", ", ".join(path.stem for path in weights), "files of different names")
    return {OWN: resolve(recipe), **others}
