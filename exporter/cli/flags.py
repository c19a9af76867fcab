"""Groups of flags that verbs share, as names of fields of the recipe."""

import argparse
from collections.abc import Mapping
from typing import Any

from exporter.settings import from_flags
from exporter.workflows.recipe import Recipe, read_recipe, yielding

__all__ = ["AMOUNT", "CALIBRATION", "IMAGES", "MEASURED", "MODEL", "OUTPUTS", "SCHEDULE", "recipe_of"]

MODEL = (
    *("model", "checkpoint", "recalibrate", "num_classes", "model_kwargs", "text_embeddings"),
    *("preprocess", "device"),
)
OUTPUTS = ("outputs",)
IMAGES = ("images", "class_map", "max_images", "seed")
CALIBRATION = ("gamma", "protocol", "normalize", "relevance_dtype")
AMOUNT = ("rho", "mac_reduction", "rates", "schedule")
SCHEDULE = ("method", "scorer", "reduce", "alpha", "anchors", "round_to")
MEASURED = ("target", "layout", "input_kind", "batch", "rounds", "threads")


def recipe_of(arguments: argparse.Namespace, defaults: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe that `--recipe` names, overridden by other flags; `defaults` replace the recipe's own."""
    base = read_recipe(arguments.recipe) if arguments.recipe else {}
    return from_flags(Recipe, arguments, {**(defaults or {}), **yielding(base, vars(arguments))})
