"""Export a model to ONNX: pruned by a schedule, or dense.

The file contains the weights, and as metadata the schedule, the preprocessing and the hash of the weights.
"""

import argparse
from pathlib import Path

from exporter.cli.flags import MODEL, OUTPUTS, add_recipe, recipe_of, refuse
from exporter.errors import RecipeError
from exporter.settings import add_flags
from exporter.workflows.recipes.recipe import Recipe

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = (
    "star-export export --model digits_vit --schedule schedule.json --out pruned.onnx",
    "star-export export --model digits_vit --dense --target onnxruntime-fp16 --out dense.onnx",
)


# What only a pruned model needs.
PRUNES = ("schedule", "calibration")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    ranges = ("images", "max_images")  # images for the INT8 activation ranges
    lowered = ("target", "input_kind", *ranges)
    add_flags(parser, Recipe, (*MODEL, *OUTPUTS, "calibration", *lowered, "schedule"))
    parser.add_argument("--dense", action="store_true", help="Export the dense model; no schedule is given.")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="The ONNX file to write.")


def run(arguments: argparse.Namespace) -> int:
    """Lower the model and write the file; the exit code is 0."""
    from exporter.cli.output import print_json, print_lines
    from exporter.cli.stages import RichStages
    from exporter.files import writable_file
    from exporter.lowering.pipeline import save_onnx
    from exporter.workflows import steps
    from exporter.workflows.recipes.amount import Given
    from exporter.workflows.recipes.resolve import resolve

    job = resolve(recipe_of(arguments), dense=arguments.dense)
    out = writable_file(arguments.out)
    amount = None if arguments.dense else job.amount
    if arguments.dense:
        refuse(arguments, PRUNES, "--dense", "the dense model drops no patches")
    elif not isinstance(amount, Given):
        raise RecipeError("export", "neither", "--schedule FILE or --dense")
    job.check_ranges()
    stages = RichStages(quiet=arguments.quiet)
    with stages.stage("model"):
        vit = steps.load_model(job.model, job.device)
    lowering = job.lowering
    if isinstance(amount, Given):
        calibration = steps.read_calibration(job.calibration, vit.spec, vit.weights_sha256)
        vit, calibration = steps.with_outputs(vit, job.outputs, calibration)
        pruned = steps.prune(vit, amount.schedule, calibration, lowering.layout)
    else:
        vit, _ = steps.with_outputs(vit, job.outputs)
        pruned = steps.dense(vit)
    with stages.stage(f"lowering, {pruned.method}"):
        ranges = steps.range_images(job.images, vit.spec, lowering.input_kind, lowering.target)
        save_onnx(steps.export(pruned, lowering, ranges), out)
    if arguments.json:
        print_json({"file": str(arguments.out), "method": pruned.method, "gmacs": pruned.macs.gmacs})
    else:
        print_lines([f"{arguments.out}: {pruned.method}, {pruned.macs.gmacs:.3f} GMACs"])
    return 0
