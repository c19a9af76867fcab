"""What verbs share: groups of flags, the recipe of flags, `--dry-run`."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli.output import print_lines, print_table, schedule_words, show
from exporter.cli.setting_flags import (
    SET,
    SetAction,
    flag_of,
    tables_from_flags,
)
from exporter.core.base.errors import RecipeError
from exporter.core.base.records import Schedule
from exporter.core.base.settings import Settings, fields_of, homes_of, sections_of
from exporter.jobs.recipe import Recipe, over, read_recipe

if TYPE_CHECKING:
    from exporter.jobs.opened import DryRun

# The model's, which every verb that loads one takes.
MODEL_FLAGS = ("model", "checkpoint", "model_kwargs", "device")
OUTPUT_FLAGS = ("outputs",)
IMAGE_FLAGS = ("images", "class_map", "max_images")
AMOUNT_FLAGS = ("rho", "mac_reduction", "rates", "schedule")
SCHEDULE_FLAGS = ("method", "merges", "scorer", "reduce")
MEASURING_FLAGS = ("target", "input_kind", "batch", "rounds")
NO_TABLES: Mapping[str, type[Settings]] = {}


def add_action(actions: Any, name: str, summary: str, *examples: str) -> Any:
    """Return the parser of an action of a verb, whose help shows commands."""
    action = actions.add_parser(name, help=summary, description=summary)
    action.explain(examples)
    action.set_defaults(parser=action)
    return action


def add_file(
    parser: Any, name: str, text: str, metavar: str = "FILE", **options: Any
) -> None:
    """Declare a flag that takes a path."""
    parser.add_argument(name, type=Path, metavar=metavar, help=text, **options)


def add_out(parser: Any, text: str, metavar: str = "FILE") -> None:
    """Declare where the verb writes."""
    add_file(parser, "--out", text, metavar, required=True)


def add_folder(parser: Any, nargs: str | None = None) -> None:
    """Declare the export folder that the verb reads."""
    text = "The export folder that `compile` wrote."
    parser.add_argument("folder", type=Path, nargs=nargs, help=text)


def add_recipe(parser: Any, more: Mapping[str, type[Settings]] = NO_TABLES) -> None:
    """Declare the flag of a file with settings, and that of a single one, which also take those without a flag.

    `more` are the tables of the file beside those of a recipe.
    """
    tables = {**sections_of(Recipe), **more}
    parser.set_defaults(tables=tables)
    keys = []
    for name, settings in sections_of(Recipe).items():
        without = [
            key for key, field in fields_of(settings).items() if not field.has_flag
        ]
        keys.append(f"[{name}] {', '.join(without)}")
    text = "A TOML file with a table for each step, of these settings and those without a flag"
    add_file(parser, "--recipe", f"{text}: {'; '.join(keys)}.")
    parser.add_argument(
        SET,
        action=SetAction,
        tables=tables,
        help="A single setting of a recipe's table, e.g. prune.alpha=0.3; may be given several times.",
    )


def refuse(
    arguments: argparse.Namespace, places: Iterable[str], beside: str, hint: str
) -> None:
    """Raise RecipeError for the first setting that is given at one of some places and would not be used."""
    for place in places:
        if place in arguments:
            flag = flag_of(Recipe, place)
            raise RecipeError(flag, f"a value beside {beside}", f"no {flag}", hint)


def recipe_of(
    arguments: argparse.Namespace, defaults: Mapping[str, Any] | None = None
) -> Recipe:
    """Return the recipe that `--recipe` names, overridden by other flags; `defaults` are tables below both."""
    base = read_recipe(arguments.recipe) if arguments.recipe is not None else {}
    start = over(dict(defaults or {}), base)
    return Recipe.of(over(start, tables_from_flags(Recipe, arguments)))


def recipe_key(flag: str, arguments: argparse.Namespace) -> str:
    """Return how to set what a verb has no flag for, e.g. "--set prune.alpha=…"; "" where it is no setting."""
    name = (
        flag.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
    )
    homes = homes_of(arguments.tables, name) if "tables" in arguments else []
    return " or ".join(f"{SET} {table}.{key}=…" for table, key in homes)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Declare the flag."""
    parser.add_argument(
        "--dry-run", action="store_true",
        help="Only check the settings and the weights; print the settings, the schedule and its multiply-adds.",
    )  # fmt: skip


def show_dry_run(arguments: argparse.Namespace, dry: "DryRun") -> int:
    """Print what a run would start from; return the exit code, 0."""
    show(arguments, dry, lambda: _print_dry_run(dry))
    return 0


def _print_dry_run(dry: "DryRun") -> None:
    """Print the settings, the multiply-adds and the schedule."""
    print_lines(_dry_lines(dry))
    schedule = dry.schedule
    if schedule is not None:
        print_schedule(f"schedule: {schedule_words(schedule)}", schedule)


def print_schedule(title: str, schedule: Schedule) -> None:
    """Print what each layer keeps."""
    rows = [(layer, f"{rate:.4f}", count) for layer, rate, count in schedule.rows]
    print_table(title, ("layer", "rate", "patches kept"), rows)


def _dry_lines(dry: "DryRun") -> Iterator[str]:
    yield f"{dry.model}: checked, nothing is run"
    for name, value in dry.settings.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else value
        yield f"{name} = {text}"
    pruned = "unknown" if dry.gmacs_pruned is None else f"{dry.gmacs_pruned:.3f}"
    why = f" (the schedule follows from {dry.unknown})" if dry.unknown else ""
    yield f"GMACs per image: {dry.gmacs_dense:.3f} of your model, {pruned} pruned{why}"
