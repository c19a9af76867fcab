"""Find the fastest model on this machine within a given accuracy loss, or the most accurate one within a latency.

--images are used only for calibration. --eval-images are split once: the search uses one half; the reported loss is
measured on the other. An interrupted search continues when started again. Exits with 1 if no model is within the
limit.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cli.dry_run import add_dry_run, print_dry_run
from exporter.cli.flags import IMAGES, MODEL
from exporter.settings import add_flags, from_flags
from exporter.vocabulary import Status
from exporter.workflows.recipes.recipe import Recipe

if TYPE_CHECKING:
    from exporter.workflows.tuning.result import Tuned
    from exporter.workflows.tuning.settings import TuneSettings

__all__ = ["DEFAULTS", "EXAMPLES", "FAILS", "SPREAD", "add_arguments", "exit_code", "print_tuned", "run"]

EXAMPLES = (
    "star-export tune --model digits_vit --images train/ --eval-images val/ --max-drop 1 --out build/tune",
    "star-export tune --model digits_vit --images train/ --eval-images val/ --max-ms 20 --out build/tune",
)
FAILS = "no model is within the limit, or the compiled model does not agree with PyTorch"

# The processes of a launcher share the runs for accuracy.
SPREAD = True
# All images to measure on, where other verbs take 1000, and 128 to calibrate on, where they take 512.
DEFAULTS = {"max_eval_images": 10**9, "max_images": 128}
PINS = ("method", "scorer", "reduce", "alpha", "rho", "mac_reduction")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from exporter.workflows.tuning.settings import TuneSettings

    add_flags(parser, TuneSettings)
    measured = ("eval_images", "max_eval_images", "calibration", "batch", "rounds", "threads")
    add_flags(parser, Recipe, (*MODEL, *IMAGES, *measured), {**DEFAULTS, "max_eval_images": "all"})
    parser.add_argument(
        "--weights", type=Path, nargs="+", default=(), metavar="FILE",
        help="More checkpoints of the model to try: without some layers, or fine-tuned.",
    )  # fmt: skip
    add_flags(parser.add_argument_group("fix an axis of the search"), Recipe, PINS)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="Folder for all results.")
    add_dry_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search and print; the exit code is that of `exit_code`."""
    from exporter.cli.output import print_json
    from exporter.cli.stages import RichStages
    from exporter.workflows.tune import dry_tune, tune
    from exporter.workflows.tuning.settings import TuneSettings

    settings = from_flags(TuneSettings, arguments)
    recipe, out = from_flags(Recipe, arguments, DEFAULTS), arguments.out
    if arguments.dry_run:
        before = dry_tune(recipe, settings, out, weights=arguments.weights)
        return print_dry_run(before, as_json=arguments.json)
    command = ("star-export", *sys.argv[1:])
    found = tune(
        recipe,
        settings,
        out,
        weights=arguments.weights,
        stages=RichStages(quiet=arguments.quiet),
        command=command,
    )
    if arguments.json:
        print_json(found)
    else:
        print_tuned(found)
    return exit_code(found, settings)


def exit_code(found: "Tuned", settings: "TuneSettings") -> int:
    """Return 1 without a choice or parity, or where the loss is not shown to be within the limit as demanded."""
    shown = found.status == Status.MET or not settings.confident
    return 0 if found.choice is not None and shown and found.parity is not False else 1


def print_tuned(found: "Tuned") -> None:
    """Print every point that was timed, and the choice."""
    from exporter.cli.output import print_lines, print_table

    columns = ("model", "target", "img/s", "gain", "points lost", "with 2 errors", "MB", "")
    rows = [
        (
            "unpruned",
            each.target,
            f"{each.images_per_s:.1f}",
            f"{each.gain:.2f} ×",
            "",
            "",
            f"{each.file_bytes / 1e6:.1f}",
            "",
        )
        for each in found.dense
    ]
    for point in found.tried:
        label, mark = point.candidate.on("").label, "chosen" if point == found.choice else ""
        speed = (f"{point.images_per_s:.1f}", f"{point.gain:.2f} ×")
        loss = (f"{point.loss_points:+.2f}", f"{point.margin_points:+.2f}")
        rows.append((label, point.candidate.target, *speed, *loss, f"{point.file_bytes / 1e6:.1f}", mark))
    title = f"{found.model}: {found.candidates} candidates, {found.images_search} images to choose by"
    print_table(title, columns, rows)
    print_lines(_lines(found))


def _lines(found: "Tuned") -> Iterator[str]:
    from exporter.cli.output import skipped_lines

    yield found.explanation
    if found.recipe:
        yield f"recipe: {found.recipe}"
    yield from skipped_lines({"calibration": found.calibration_skipped, "evaluation": found.skipped})
    if found.parity is False:
        yield "the compiled model does not agree with PyTorch: see its report"
