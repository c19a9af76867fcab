"""The actions of `depth` that train: collect samples, and choose units."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli.depth_lines import chosen_lines, collected_lines, layers
from exporter.cli.flags import MODEL, add_action
from exporter.cli.training_flags import add_training, training_of
from exporter.settings import add_flags, from_flags
from exporter.workflows.recipes.recipe import Recipe

if TYPE_CHECKING:
    from exporter.workflows.recipes.job import Job

__all__ = ["COLLECT", "add_choose", "add_collect"]

# Stages are short: the samples need an order of models, not their best accuracy.
PRESET = "short"
IMAGES = ("images", "class_map", "seed")
COLLECT = "star-export depth collect --model digits_vit --images photos/ --units 4 --out build/depth"
CHOOSE = (
    "star-export depth choose --model digits_vit --images photos/ --attention-units 2 --activation-units 2"
    " --out chosen.safetensors"
)


def add_collect(actions: Any) -> None:
    """Declare the action that measures smaller and smaller models."""
    from exporter.depth.settings import CollectSettings

    action = add_action(
        actions,
        "collect",
        "Measure models with fewer and fewer units: samples for fit and search.",
        COLLECT,
    )
    add_flags(action, Recipe, (*MODEL, *IMAGES, "eval_images", "max_eval_images"))
    add_flags(action, CollectSettings)
    action.add_argument("--out", type=Path, required=True, metavar="DIR", help="The folder of samples.json.")
    add_training(action, PRESET)
    action.set_defaults(act=_collect)


def add_choose(actions: Any) -> None:
    """Declare the action that finds which units to remove."""
    from exporter.depth.settings import ChoiceSettings

    action = add_action(actions, "choose", "Train to find which units to remove, and remove them.", CHOOSE)
    add_flags(action, Recipe, (*MODEL, *IMAGES))
    add_flags(action, ChoiceSettings)
    action.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="The weights, unmerged, .safetensors."
    )
    add_training(action, PRESET)
    action.set_defaults(act=_choose)


def _collect(arguments: argparse.Namespace) -> int:
    from exporter.cli.output import print_json, print_lines, print_table
    from exporter.cli.stages import RichStages
    from exporter.depth.settings import CollectSettings
    from exporter.workflows.depth.training import collect_to

    job, settings = _job(arguments), training_of(arguments)
    collection = from_flags(CollectSettings, arguments)
    found = collect_to(job, collection, settings, arguments.out, RichStages(quiet=arguments.quiet))
    if arguments.json:
        print_json(found)
        return 0
    samples = found.samples
    rows = [(*layers(each.plan), f"{each.accuracy:.2f}") for each in samples]
    columns = ("without attention", "without activation", "top-1, %")
    print_table(f"{len(samples)} samples, {samples[0].images} images", columns, rows)
    print_lines(
        [*collected_lines(found), f"{arguments.out / 'samples.json'}: for --samples of fit and search"]
    )
    return 0


def _choose(arguments: argparse.Namespace) -> int:
    from exporter.cli.output import print_json, print_lines
    from exporter.cli.stages import RichStages
    from exporter.depth.settings import ChoiceSettings
    from exporter.workflows.depth.training import choose_to

    job, settings = _job(arguments), training_of(arguments)
    choice = from_flags(ChoiceSettings, arguments)
    done = choose_to(job, choice, settings, arguments.out, RichStages(quiet=arguments.quiet))
    if arguments.json:
        print_json(done)
    else:
        print_lines(chosen_lines(done))
    return 0


def _job(arguments: argparse.Namespace) -> "Job":
    from exporter.workflows.recipes.resolve import resolve

    job = resolve(from_flags(Recipe, arguments))
    job.check_named()
    return job
