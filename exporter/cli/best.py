"""Find the fastest runtime and precision for a model on this machine, within a limit on the loss of accuracy.

Exports the model for every target whose runtime is installed and whose instructions the CPU supports, and measures
all of them, dense and pruned, in one run. Needs a calibration, like `search`, except for ToMe.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cli.flags import AMOUNT, IMAGES, MODEL, SCHEDULE, recipe_of
from exporter.settings import add_flags
from exporter.workflows.recipes.recipe import Recipe

if TYPE_CHECKING:
    from exporter.workflows.best import Best, Choice

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = (
    "star-export best --model digits_vit --images photos/ --rho 0.7",
    "star-export best --model digits_vit --images photos/ --rho 0.7 --max-drop 1",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--max-drop",
        type=float,
        metavar="POINTS",
        help="Largest loss of top-1 in percentage points; without it, accuracy is not measured.",
    )
    parser.add_argument("--recipe", type=Path, metavar="FILE", help="A TOML file with any of these settings.")
    measured = ("input_kind", "batch", "rounds", "threads", "eval_images", "max_eval_images")
    add_flags(parser, Recipe, (*MODEL, "calibration", "interpolate", *AMOUNT, *SCHEDULE, *measured, *IMAGES))


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; the exit code is always 0."""
    from exporter.cli.output import print_json
    from exporter.cli.stages import RichStages
    from exporter.workflows.best import choose

    result = choose(recipe_of(arguments), arguments.max_drop, RichStages(quiet=arguments.quiet))
    if arguments.json:
        print_json(result)
    else:
        _print(result)
    return 0


def _print(result: "Best") -> None:
    from exporter.cli.output import print_lines, print_table

    rho = "" if result.rho is None else f", rho {result.rho:.4g}"
    columns = ("target", "img/s", "gain", "quartiles", "own", "top-1", "95 % interval", "drop")
    measured = [_row(each) for each in result.choices if each.speed]
    print_table(f"{result.model}{rho}, batch {result.batch}", columns, measured)
    print_lines(_lines(result))


def _row(choice: "Choice") -> tuple[str, ...]:
    speed = choice.speed
    assert speed is not None
    rate = f"{speed.throughput.pruned.images_per_s:.1f}"
    cost: tuple[str, ...] = ("", "", "")
    if choice.interval is not None:
        low, high = choice.interval
        cost = (f"{choice.top1:.2%}", f"{low:.2%} to {high:.2%}", f"{choice.drop:+.2f}")
    gain, own = speed.total_gain, f"{speed.speedup.median:.2f} ×"
    quartiles = f"{gain.quartiles[0]:.2f} to {gain.quartiles[1]:.2f}"
    return (choice.target, rate, f"{gain.median:.2f} ×", quartiles, own, *cost)


def _lines(result: "Best") -> Iterator[str]:
    for each in result.choices:
        if each.left_out:
            yield f"{each.target} is not measured: {each.left_out}"
    yield "gain: relative to dense fp32 on ONNX Runtime; own: relative to the dense model of the same target"
    yield f"best: --target {result.best}"
