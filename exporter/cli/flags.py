"""Groups of flags that verbs share, as names of fields of the recipe."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from exporter.errors import RecipeError
from exporter.settings import fields_of, from_flags
from exporter.workflows.recipes.recipe import Recipe, read_recipe, yielding

__all__ = [
    "AMOUNT",
    "IMAGES",
    "MEASURED",
    "MODEL",
    "OUTPUTS",
    "SCHEDULE",
    "add_action",
    "add_common",
    "add_recipe",
    "recipe_key",
    "recipe_of",
    "refuse",
]

MODEL = ("model", "checkpoint", "model_kwargs", "device")
OUTPUTS = ("outputs",)
IMAGES = ("images", "class_map", "max_images")
AMOUNT = ("rho", "mac_reduction", "rates", "schedule")
SCHEDULE = ("method", "counts", "scorer", "reduce")
MEASURED = ("target", "input_kind", "batch", "rounds", "threads")
# The keys of a recipe that no verb has a flag for.
KEYS = tuple(name for name, field in fields_of(Recipe).items() if not field.has_flag)


def add_action(actions: Any, name: str, summary: str, *examples: str) -> Any:
    """Return the parser of an action of a verb, whose help shows commands."""
    action = actions.add_parser(name, help=summary, description=summary)
    action.explain(examples)
    return action


def add_common(parser: argparse.ArgumentParser, **changes: Any) -> None:
    """Declare the flags of every verb; an action of a verb has them with `default` SUPPRESS, so as to keep them."""
    parser.add_argument("--json", action="store_true", help="Print the result as JSON.", **changes)
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="Print no progress and no warnings to stderr.", **changes
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="Log every step to stderr.", **changes)


def add_recipe(parser: Any) -> None:
    """Declare the flag of a file with settings, which also takes those that have no flag."""
    keys = f"{', '.join(KEYS[:-1])} and {KEYS[-1]}"
    parser.add_argument(
        "--recipe",
        type=Path,
        metavar="FILE",
        help=f"A TOML file with any of these settings, and with {keys}.",
    )


def refuse(arguments: argparse.Namespace, names: Iterable[str], beside: str, hint: str) -> None:
    """Raise RecipeError for the first of some flags that is given and would not be used."""
    for name in names:
        if name in arguments:
            flag = f"--{name.replace('_', '-')}"
            raise RecipeError(flag, f"a value beside {beside}", f"no {flag}", hint)


def recipe_of(arguments: argparse.Namespace, defaults: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe that `--recipe` names, overridden by other flags; `defaults` replace the recipe's own."""
    base = read_recipe(arguments.recipe) if arguments.recipe is not None else {}
    return from_flags(Recipe, arguments, {**(defaults or {}), **yielding(base, vars(arguments))})


def recipe_key(flag: str, arguments: argparse.Namespace) -> str | None:
    """Return the key of a verb's recipe in place of a flag that it does not have; None where there is none.

    "[training]" stands before a key of that table.
    """
    from exporter.training.settings import FinetuneSettings

    name = flag.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
    if "recipe" in arguments and name in fields_of(Recipe):
        return name
    return f"[training] {name}" if "preset" in arguments and name in fields_of(FinetuneSettings) else None
