"""Groups of flags that verbs share, as names of fields of the recipe."""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from exporter.errors import RecipeError
from exporter.settings import from_flags
from exporter.workflows.recipes.recipe import Recipe, read_recipe, yielding

__all__ = [
    "AMOUNT",
    "CALIBRATION",
    "IMAGES",
    "MEASURED",
    "MODEL",
    "OUTPUTS",
    "SCHEDULE",
    "add_action",
    "add_common",
    "recipe_of",
    "refuse",
]

MODEL = (
    *("model", "checkpoint", "recalibrate", "num_classes", "model_kwargs", "text_embeddings"),
    *("preprocess", "device"),
)
OUTPUTS = ("outputs",)
IMAGES = ("images", "class_map", "max_images", "seed")
CALIBRATION = ("gamma", "protocol", "normalize", "relevance_dtype")
AMOUNT = ("rho", "mac_reduction", "rates", "schedule")
SCHEDULE = ("method", "scorer", "reduce", "alpha", "anchors", "round_to", "query_stride")
MEASURED = ("target", "layout", "input_kind", "batch", "rounds", "threads")


def add_action(actions: Any, name: str, summary: str, example: str) -> Any:
    """Return the parser of an action of a verb, whose help shows one command."""
    action = actions.add_parser(name, help=summary, description=summary)
    action.explain((example,))
    return action


def add_common(parser: argparse.ArgumentParser, **changes: Any) -> None:
    """Declare the flags of every verb; an action of a verb has them with `default` SUPPRESS, so as to keep them."""
    parser.add_argument("--json", action="store_true", help="Print the result as JSON.", **changes)
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="Print no progress and no warnings to stderr.", **changes
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="Log every step to stderr.", **changes)


def refuse(arguments: argparse.Namespace, names: Iterable[str], beside: str, hint: str) -> None:
    """Raise RecipeError for the first of some flags that is given and would not be used."""
    for name in names:
        if name in arguments:
            flag = f"--{name.replace('_', '-')}"
            raise RecipeError(flag, f"a value beside {beside}", f"no {flag}", hint)


def recipe_of(arguments: argparse.Namespace, defaults: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe that `--recipe` names, overridden by other flags; `defaults` replace the recipe's own."""
    base = read_recipe(arguments.recipe) if arguments.recipe else {}
    return from_flags(Recipe, arguments, {**(defaults or {}), **yielding(base, vars(arguments))})
