"""Export a model to ONNX: pruned by a schedule, or dense.

The file contains the weights, and as metadata the schedule, the preprocessing and the hash of the weights.
"""

import argparse

from exporter.cli.flags import (
    MODEL_FLAGS,
    OUTPUT_FLAGS,
    add_out,
    add_recipe,
    recipe_of,
    refuse,
)
from exporter.cli.output import print_lines, show
from exporter.cli.setting_flags import add_flags
from exporter.core.base.errors import RecipeError
from exporter.core.base.files import writable_file
from exporter.jobs.network import Network
from exporter.jobs.recipe import Recipe

EXAMPLES = (
    "star-export export --model digits_vit --schedule schedule.json --out pruned.onnx",
    "star-export export --model digits_vit --dense --target onnxruntime-fp16 --out dense.onnx",
)


# What only a pruned model needs.
PRUNES = ("prune.schedule", "prune.calibration")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    ranges = ("images", "max_images")  # images for the INT8 activation ranges
    lowered = ("target", "input_kind", *ranges)
    add_flags(
        parser,
        Recipe,
        (*MODEL_FLAGS, *OUTPUT_FLAGS, "calibration", *lowered, "schedule"),
    )
    parser.add_argument(
        "--dense",
        action="store_true",
        help="Export the dense model; no schedule is given.",
    )
    add_out(parser, "The ONNX file to write.")


def run(arguments: argparse.Namespace) -> int:
    """Lower the model and write the file; the exit code is 0."""
    recipe, out = recipe_of(arguments), writable_file(arguments.out)
    _check(arguments, Network.of(recipe))
    from exporter.core.base.large_onnx import save_onnx
    from exporter.jobs.opened import open_recipe

    stages = arguments.stages
    variant = open_recipe(recipe, stages, dense=arguments.dense)
    pruned = variant.pruned
    with stages.stage(f"export, {pruned.method}"):
        save_onnx(variant.lower(), out)
    method, gmacs = pruned.method, pruned.macs.gmacs
    record = {"file": str(out), "method": method, "gmacs": gmacs}
    show(
        arguments,
        record,
        lambda: print_lines([f"{out}: {method}, {gmacs:.3f} GMACs"]),
    )
    return 0


def _check(arguments: argparse.Namespace, network: Network) -> None:
    """Check what needs no model."""
    if arguments.dense:
        refuse(arguments, PRUNES, "--dense", "the dense model drops no patches")
    policy = network.policy(dense=arguments.dense)
    if not arguments.dense and policy.amount.whole_schedule is None:
        raise RecipeError("export", "neither", "--schedule FILE or --dense")
    network.check_images()
    # Those of the target: a schedule says itself what it lacks.
    network.check_needs(None, network.recipe.lower.row)
    network.check_model()
