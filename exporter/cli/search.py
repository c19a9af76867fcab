"""Find the rho that reaches a measured speed-up: export each candidate and measure it beside the dense model.

Needs a calibration, except for ToMe and for given rates without inter-layer scores. Needs images for a-STAR, whose
speed depends on them. Writes a schedule, like `plan`, and prints every candidate. Exits with 1 if this machine
cannot reach the speed-up.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cli.flags import IMAGES, MEASURED, MODEL, OUTPUTS, SCHEDULE
from exporter.settings import add_flags, from_flags
from exporter.workflows.recipes.recipe import Recipe

if TYPE_CHECKING:
    from exporter.evaluation.benchmark.timing import Point
    from exporter.workflows.search import Search

__all__ = ["EXAMPLES", "FAILS", "add_arguments", "run"]

EXAMPLES = ("star-export search --model digits_vit --images photos/ --speedup 1.5 --out schedule.json",)
FAILS = "the speed-up is out of reach on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--steps", type=int, default=6, metavar="N", help="Largest number of measurements. Default: 6."
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="The schedule to write, as JSON.")
    names = (
        "speedup",
        "rates",
        "schedule",
        *MODEL,
        *OUTPUTS,
        "calibration",
        "interpolate",
        *SCHEDULE,
        *MEASURED,
        *IMAGES,
    )
    add_flags(parser, Recipe, names)


def run(arguments: argparse.Namespace) -> int:
    """Search and print the candidates; the exit code is 0 if the speed-up is reached, else 1."""
    from exporter.cli.output import print_json
    from exporter.cli.stages import RichStages
    from exporter.files import writable_file
    from exporter.formats.canonical_json import save_json
    from exporter.workflows.search import search

    recipe = from_flags(Recipe, arguments)
    out = writable_file(arguments.out) if arguments.out else None
    result = search(recipe, arguments.steps, RichStages(quiet=arguments.quiet))
    if result.schedule is not None and out:
        save_json(result.schedule, out)
    if arguments.json:
        print_json(result)
    else:
        _print(result, recipe)
    return 0 if result.schedule is not None else 1


def _print(result: "Search", recipe: Recipe) -> None:
    from exporter.cli.output import print_lines, print_table

    title = f"{recipe.model}: {result.speedup:g} × at batch {result.batch}, {recipe.rounds} rounds each"
    columns = ("rho", "GMACs", "img/s", "speed-up", "quartiles", "E", "reached")
    print_table(title, columns, [_row(point, result) for point in result.tried])
    print_lines(_lines(result))


def _row(point: "Point", result: "Search") -> tuple[str, ...]:
    comparison = point.comparison
    low, high = comparison.quartiles
    measured = (
        f"{point.throughput.images_per_s:.1f}",
        f"{comparison.speedup:.3f}",
        f"{low:.3f} to {high:.3f}",
    )
    reached = "yes" if low >= result.speedup else "no"
    return (f"{point.rho:.4g}", f"{point.gmacs:.3f}", *measured, f"{comparison.efficiency:.2f}", reached)


def _lines(result: "Search") -> Iterator[str]:
    if result.found is None:
        best = result.tried[0].comparison
        yield f"out of reach: {best.speedup:.2f} × (lower quartile {best.quartiles[0]:.2f}) at the smallest rho"
    else:
        low, high = result.found.comparison.quartiles
        speedup = result.found.comparison.speedup
        yield f"rho {result.found.rho:.4g}: {speedup:.3f} × (quartiles {low:.3f} to {high:.3f})"
