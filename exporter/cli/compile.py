"""Run the whole pipeline: calibrate, plan, prune, export, compare with PyTorch, and measure.

Settings come from flags, from a TOML recipe, or from both; a flag overrides the recipe. Exits with 1 if an exported
model does not agree with its PyTorch reference. `tune` finds how to prune, how much, and the target.

Several methods, as `--method matching,star,a-star`, are compared: each is compiled into a folder of its own in DIR,
all are measured in one run, and one report shows them side by side.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

from exporter.cli.flags import (
    AMOUNT_FLAGS,
    IMAGE_FLAGS,
    MEASURING_FLAGS,
    MODEL_FLAGS,
    OUTPUT_FLAGS,
    SCHEDULE_FLAGS,
    add_dry_run,
    add_out,
    add_recipe,
    recipe_of,
    show_dry_run,
)
from exporter.cli.output import (
    RichStages,
    print_lines,
    print_table,
    schedule_words,
    show,
    skipped_lines,
)
from exporter.cli.setting_flags import add_flags
from exporter.core.base.errors import RecipeError
from exporter.core.base.vocabulary import Method
from exporter.core.verify.record import explain
from exporter.jobs.checks import check_compile, recipes_of
from exporter.jobs.network import Network
from exporter.jobs.recipe import Recipe
from exporter.measure.batch_sweep import AS_IT_CAME
from exporter.measure.loss import points_words
from exporter.report.record import Report

EXAMPLES = (
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --out build/digits",
    "star-export compile --recipe engines/demo.toml --rho 0.5 --out build/demo",
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --method star,tome --out both",
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --out build/digits --dry-run",
)
FAILS = "an exported model does not agree with PyTorch"
# After an interruption, the same command goes on.
RESUMES = True

# Where the arguments have the method, or several with commas.
METHOD = "prune.method"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    add_out(parser, "The export folder.", "DIR")
    add_flags(
        parser,
        Recipe,
        (*MODEL_FLAGS, *OUTPUT_FLAGS, *IMAGE_FLAGS, "eval_images", "max_eval_images"),
    )
    how = (*AMOUNT_FLAGS, "calibration", "refit", *SCHEDULE_FLAGS, *MEASURING_FLAGS)
    add_flags(parser, Recipe, how)
    add_dry_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile and print the report; the exit code is 0 if all models pass the parity check, else 1."""
    stages, out = RichStages(quiet=arguments.quiet or arguments.dry_run), arguments.out
    names = getattr(arguments, METHOD, "").split(",")
    methods = [Method.named(name) for name in names] if len(names) > 1 else []
    if methods:
        setattr(arguments, METHOD, methods[0])
    recipe = recipe_of(arguments)
    if arguments.dry_run and methods:
        raise RecipeError("--dry-run", f"{len(methods)} methods", "one method")
    for method_recipe in recipes_of(recipe, methods) if methods else (recipe,):
        network = Network.of(method_recipe)
        check_compile(network, network.policy(refits=True), out)
        network.check_model()
    with stages.stage("libraries"):
        from exporter.jobs.compile import (
            compare_methods,
            compile_model,
            dry_compile,
        )

    if arguments.dry_run:
        return show_dry_run(arguments, dry_compile(recipe, out))
    command = ("star-export", *sys.argv[1:])
    if methods:
        reports = compare_methods(recipe, methods, out, stages=stages, command=command)
        show(arguments, reports, lambda: print_reports(reports, out))
    else:
        report = compile_model(recipe, out, stages=stages, command=command)
        reports = {report.schedule.method: report}
        show(arguments, report, lambda: print_reports(reports, out))
    return 0 if all(result.passed for result in reports.values()) else 1


def print_reports(by_method: Mapping[Method, Report], out: Path) -> None:
    """Print a row for the user's model, the dense one and each method, then what else was measured."""
    reports = list(by_method.values())
    first, alone, columns = reports[0], len(reports) == 1, _cells(reports[0])
    table = [_row("dense", columns, "dense")]
    if first.in_fp32 or first.original or first.gmacs.as_it_came > first.gmacs.dense:
        table.insert(0, _row(AS_IT_CAME, columns, AS_IT_CAME))
    for method, report in by_method.items():
        table.append(_row(method, _cells(report), "pruned"))
    print_lines(f"{report.schedule.method}: {report.sentence}" for report in reports)
    saved = f"{first.gmacs.saved:.1%} of your model's multiply-adds saved"
    how = schedule_words(first.schedule, saved) if alone else first.target
    batch = f", batch {first.batch}" if first.speed else ""
    print_table(f"{first.model}, {how}{batch}", ("", *columns), table)
    lines = list(_lines(reports))
    if alone:
        _print_use(first)
        lines += _lines_of_one(first)
        lines += [f"with trtexec, in {out}:", *first.trtexec] if first.trtexec else []
    print_lines([*lines, f"full report: {out / 'report.html'}"])


def _row(name: str, columns: Mapping[str, Mapping[str, str]], role: str) -> list[str]:
    return [name, *(column.get(role, "") for column in columns.values())]


def _cells(report: Report) -> dict[str, dict[str, str]]:
    """Return what was measured, by column and model; losses and speed-ups are against the user's model, in fp32."""
    gmacs, loss, fp32 = report.gmacs, report.loss, report.in_fp32
    macs = {AS_IT_CAME: gmacs.as_it_came, "dense": gmacs.dense, "pruned": gmacs.pruned}
    cells = {"GMACs": {role: f"{count:.3f}" for role, count in macs.items()}}
    if report.accuracy:
        cells["top-1"] = {
            role: f"{part.top1:.2%}" for role, part in vars(report.accuracy).items()
        }
        # Of a target in fp32 the dense file is measured alone: it computes your model, to rounding.
        came = fp32 and fp32.accuracy
        cells["top-1"][AS_IT_CAME] = f"{came.top1:.2%}" if came else "as dense"
    if loss and loss.loss_points is not None:
        lost = {"pruned": points_words(loss.loss_points)}
        if fp32:
            lost["dense"] = points_words(report.precision_loss)
        cells["points"] = lost
    elif loss:
        cells["same class"] = {"pruned": f"{loss.agreement:.2%}"}
    if report.agreement:
        cells["cosine"] = {"pruned": report.agreement.words}
    if report.deviations:
        cells[report.deviations.column] = {"pruned": report.deviations.words}
    return cells | _speed_cells(report)


def _speed_cells(report: Report) -> dict[str, dict[str, str]]:
    """Return the columns of speed, where it was measured."""
    if report.speed is None:
        return {}
    times = dict(vars(report.speed.throughput))
    gains = {"pruned": report.speed_up}
    if original := report.original:
        times[AS_IT_CAME], gains["dense"] = original.throughput, original.gain.dense
    return {
        "images/s": {role: f"{time.images_per_s:.1f}" for role, time in times.items()},
        "speed-up": {
            role: f"{gain.median:.2f}" for role, gain in gains.items() if gain
        },
    }


def _print_use(report: Report) -> None:
    """Print how many patches the images keep, where that depends on the image."""
    if report.use is None:
        return
    rows = [
        (use.layer, use.least, f"{use.median:g}", f"{use.p95:g}", use.most, use.star)
        for use in report.use.layers
    ]
    title = f"patches kept, {report.use.images} images, {report.use.layout}"
    print_table(title, ("layer", "least", "median", "p95", "most", "STAR"), rows)


def _lines(reports: Sequence[Report]) -> Iterator[str]:
    """Yield images and parity, and what fine-tuning recorded of the weights, the last one first."""
    first = reports[0]
    images = f"images: {first.preprocessing.words}, by {first.sources.preprocessing}"
    yield from wrap(images, 80, subsequent_indent="  ")
    for parity in (first.parity.dense, *(report.parity.pruned for report in reports)):
        yield explain(parity)[0]
    if first.measured_on == "noise":
        yield "measured on noise, not on photos: --images DIR adds accuracy, and agreement on images"
    yield from dict.fromkeys(line for report in reports for line in _skipped(report))
    for report in reports:
        method = report.schedule.method
        if report.speed:
            yield _speed_line(report)
        if report.loss and report.loss.words:
            yield f"{method}, points of top-1: {report.loss.words}"
        if report.refit:
            yield f"{method}, refit: {report.refit.words}"
        for name, value in (report.likeness.rows if report.likeness else {}).items():
            yield f"{method}, {name}: {value}"
    for tuned in first.tuned.every if first.tuned else ():
        yield f"as fine-tuned, points of top-1: {tuned.loss.words}, {tuned.words}"


def _skipped(report: Report) -> Iterator[str]:
    calibrated = report.calibration.skipped if report.calibration else {}
    return skipped_lines({"calibration": calibrated, "evaluation": report.skipped})


def _lines_of_one(report: Report) -> Iterator[str]:
    """Yield what the table has no place for."""
    if report.loss and report.loss.words and report.tuned:
        yield "points are against the fine-tuned weights, unpruned"
    if report.pair and report.accuracy:  # without labels, the table has it
        yield f"agreement: the same class as from the dense model on {report.pair.agreement:.2%} of the images"


def _speed_line(report: Report) -> str:
    """Return the speed-up over the user's model, with its quartiles and what ran both."""
    gain = report.speed_up
    assert gain is not None
    low, high = gain.quartiles
    name, fp32 = report.schedule.method, " in fp32" if report.in_fp32 else ""
    return (
        f"{name}: {gain.outcome}, {gain.median:.2f} × your model{fp32} on {report.timed_on} "
        f"(quartiles {low:.2f} to {high:.2f})"
    )
