"""Run the whole pipeline: calibrate, plan, prune, export, compare with PyTorch, and measure.

Settings come from flags, from a TOML recipe, or from both; a flag overrides the recipe. Exits with 1 if an exported
model does not agree with its PyTorch reference. With --max-drop, `tune` first chooses how to prune and the target.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cli.dry_run import add_dry_run, print_dry_run
from exporter.cli.flags import AMOUNT, IMAGES, MEASURED, MODEL, OUTPUTS, SCHEDULE, add_recipe, recipe_of
from exporter.settings import add_flags
from exporter.workflows.recipes.recipe import Recipe

if TYPE_CHECKING:
    from exporter.evaluation.report.record import Report

__all__ = ["EXAMPLES", "FAILS", "add_arguments", "run"]

EXAMPLES = (
    "star-export compile --model digits_vit --images photos/ --rho 0.7 --out build/digits",
    "star-export compile --recipe engines/demo.toml --rho 0.5 --out build/demo",
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --out build/digits --dry-run",
)
FAILS = "an exported model does not agree with PyTorch, or no model is within --max-drop"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="The export folder.")
    evaluated = ("eval_images", "max_eval_images", "calibration")
    amount = (*AMOUNT, "speedup")
    names = (*MODEL, *OUTPUTS, *IMAGES, *evaluated, *amount, *SCHEDULE, *MEASURED)
    add_flags(parser, Recipe, (*names, "sweep"))
    parser.add_argument(
        "--max-drop", type=float, metavar="POINTS",
        help="Largest loss of top-1 in percentage points; `tune` then finds the fastest model within it.",
    )  # fmt: skip
    add_dry_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile and print the report; the exit code is 0 if both models pass the parity check, else 1."""
    from exporter.cli.output import print_json
    from exporter.cli.stages import RichStages
    from exporter.workflows.compiling.compile import compile_model, dry_compile

    if arguments.max_drop is not None:
        return _tuned(arguments)
    if arguments.dry_run:
        return print_dry_run(dry_compile(recipe_of(arguments), arguments.out), as_json=arguments.json)
    report = compile_model(recipe_of(arguments), arguments.out, stages=RichStages(quiet=arguments.quiet))
    if arguments.json:
        print_json(report)
    else:
        _print(report, arguments.out)
    return 0 if report.passed else 1


def _tuned(arguments: argparse.Namespace) -> int:
    """Search with tune's defaults, and compile what it finds; the exit code is 1 if nothing is within the limit."""
    from exporter.cli.output import print_json
    from exporter.cli.stages import RichStages
    from exporter.cli.tune import DEFAULTS, exit_code, print_tuned
    from exporter.workflows.recipes.recipe import read_recipe
    from exporter.workflows.tune import dry_tune, tune
    from exporter.workflows.tuning.settings import TuneSettings

    told = {**(read_recipe(arguments.recipe) if arguments.recipe else {}), **vars(arguments)}
    settings = TuneSettings(max_drop=arguments.max_drop, target=told.get("target"))
    recipe, out = recipe_of(arguments, DEFAULTS), arguments.out
    if arguments.dry_run:
        return print_dry_run(dry_tune(recipe, settings, out / "tune"), as_json=arguments.json)
    found = tune(recipe, settings, out / "tune", compiled=out, stages=RichStages(quiet=arguments.quiet))
    if arguments.json:
        print_json(found)
    else:
        print_tuned(found)
    return exit_code(found, settings)


def _print(report: "Report", out: Path) -> None:
    from exporter.cli.output import percent_interval, print_lines, print_table

    rows = [("GMACs", f"{report.gmacs.dense:.3f}", f"{report.gmacs.pruned:.3f}")]
    if report.accuracy:
        pair = report.accuracy
        rows.append(("top-1", f"{pair.dense.top1:.2%}", f"{pair.pruned.top1:.2%}"))
        dense, pruned = percent_interval(pair.dense.interval), percent_interval(pair.pruned.interval)
        rows.append(("95 % interval", dense, pruned))
    if report.pair:
        rows.append(("same class", "", f"{report.pair.agreement:.2%}"))
    if report.agreement:
        agreed = report.agreement
        rows.append(("cosine of embeddings", "", f"{agreed.embedding_cosine:.4f}"))
        if agreed.retrieval_at_1 is not None:
            rows.append(("same nearest image", "", f"{agreed.retrieval_at_1:.2%}"))
    if report.throughput:
        times = report.throughput
        title = f"images/s, batch {report.batch}"
        rows.append((title, f"{times.dense.images_per_s:.1f}", f"{times.pruned.images_per_s:.1f}"))
    rho = "" if report.rho is None else f", rho {report.rho:.4g}"
    print_table(f"{report.model}, {report.method}, {report.reduce}{rho}", ("", "dense", "pruned"), rows)
    if report.use:
        columns = ("layer", "least", "median", "p95", "most", "STAR")
        use = [
            (each.layer, each.least, f"{each.median:g}", f"{each.p95:g}", each.most, each.star)
            for each in report.use.layers
        ]
        print_table(f"patches kept, {report.use.images} images, {report.use.layout}", columns, use)
    print_lines([*_lines(report), f"full report: {out / 'report.html'}"])


def _lines(report: "Report") -> Iterator[str]:
    """Yield what follows the tables: parity, loss, speed, and the points of a sweep."""
    from exporter.cli.output import skipped_lines
    from exporter.evaluation.parity import explain

    yield from (explain(report.dense_parity)[0], explain(report.parity)[0])
    if report.measured_on == "noise":
        yield "measured on noise, not on photos: --images DIR adds accuracy, and agreement on images"
    if report.pair and report.pair.loss_interval_points:
        low, high = report.pair.loss_interval_points
        yield f"loss: {report.pair.loss_points:.2f} points of top-1 (95 % {low:.2f} to {high:.2f})"
    yield from skipped_lines({"calibration": report.calibration_skipped, "evaluation": report.skipped})
    if report.comparison:
        low, high = report.comparison.quartiles
        yield (
            f"{report.comparison.outcome}: {report.comparison.speedup:.2f} × (quartiles {low:.2f} to {high:.2f}), "
            f"E = {report.comparison.efficiency:.2f} relative to the MAC ratio"
        )
    for point in report.sweep.points if report.sweep else ():
        yield (
            f"rho {point.rho:.4g}: {point.gmacs:.3f} GMACs, {point.throughput.images_per_s:.1f} images/s, "
            f"{point.comparison.outcome}, {point.comparison.speedup:.2f} ×"
        )
