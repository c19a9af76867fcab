"""Lower a model to ONNX: pruned by a schedule, or dense.

The file holds its weights, its schedule, its preprocessing and where it comes from.
"""

import argparse
from pathlib import Path

from exporter.cli.flags import MODEL
from exporter.errors import RecipeError
from exporter.settings import add_flags, from_flags
from exporter.workflows.recipe import Recipe

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    lowered = ("target", "layout", "input_kind")
    ranges = ("images", "max_images", "seed")  # what INT8 takes the ranges of activations from
    add_flags(parser, Recipe, (*MODEL, "calibration", "interpolate", *lowered, *ranges))
    parser.add_argument("--schedule", type=Path, metavar="FILE", help="What `plan` left.")
    parser.add_argument(
        "--dense", action="store_true", help="The model as it is, in the place of a schedule."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="The ONNX file.")


def run(arguments: argparse.Namespace) -> int:
    """Lower; 0."""
    from exporter.cli.output import RichStages, print_json, print_lines  # noqa: PLC0415
    from exporter.lowering.pipeline import save_onnx  # noqa: PLC0415
    from exporter.records import Schedule, load_json  # noqa: PLC0415
    from exporter.targets import target_named  # noqa: PLC0415
    from exporter.workflows import steps  # noqa: PLC0415

    recipe = from_flags(Recipe, arguments)
    if arguments.dense == (arguments.schedule is not None):
        raise RecipeError("export", "both" if arguments.dense else "neither", "--schedule FILE or --dense")
    stages = RichStages()
    with stages.stage("model"):
        vit = steps.load_model(recipe)
    if arguments.dense:
        pruned = steps.dense(vit)
    else:
        schedule = load_json(Schedule, arguments.schedule)
        layout = target_named(recipe.target).layout(recipe.layout)
        pruned = steps.prune(vit, schedule, steps.read_calibration(vit, recipe), layout)
    with stages.stage(f"lowering, {pruned.method}"):
        model = steps.export(pruned, recipe)
        save_onnx(model, arguments.out)
    if arguments.json:
        print_json({"file": str(arguments.out), "method": pruned.method, "gmacs": pruned.macs.gmacs})
    else:
        print_lines([f"{arguments.out}: {pruned.method}, {pruned.macs.gmacs:.3f} GMACs"])
    return 0
