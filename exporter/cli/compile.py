"""Run the whole pipeline: calibrate, plan, prune, export, compare with PyTorch, and measure.

Settings come from flags, from a TOML recipe, or from both; a flag overrides the recipe. Exits with 1 if an exported
model does not agree with its PyTorch reference. `tune` finds how to prune, how much, and the target.

Several methods, as `--method matching,star,a-star`, are compared: each is compiled into a folder of its own in DIR,
all are measured in one run, and one report shows them side by side.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from exporter.cli.flags import (
    AMOUNT,
    IMAGES,
    MEASURED,
    MODEL,
    OUTPUTS,
    SCHEDULE,
    add_dry_run,
    add_recipe,
    print_dry_run,
    recipe_of,
)
from exporter.cli.output import (
    RichStages,
    percent_interval,
    print_lines,
    print_table,
    show,
    skipped_lines,
)
from exporter.errors import RecipeError
from exporter.evaluation.accuracy import Accuracy
from exporter.evaluation.batch_sweep import AS_IT_CAME
from exporter.evaluation.parity.checks import explain
from exporter.evaluation.report.record import Report
from exporter.settings.flags import add_flags
from exporter.vocabulary import Method
from exporter.workflows.recipe import Recipe

EXAMPLES = (
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --out build/digits",
    "star-export compile --recipe engines/demo.toml --rho 0.5 --out build/demo",
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --method star,tome --out both",
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --out build/digits --dry-run",
)
FAILS = "an exported model does not agree with PyTorch"

# The column of speed-ups over the model as it came.
OVER = f"× {AS_IT_CAME}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="The export folder.")
    evaluated = ("eval_images", "max_eval_images", "calibration", "refit")
    add_flags(parser, Recipe, (*MODEL, *OUTPUTS, *IMAGES, *evaluated, *AMOUNT, *SCHEDULE, *MEASURED))
    add_dry_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile and print the report; the exit code is 0 if all models pass the parity check, else 1."""
    stages = RichStages(quiet=arguments.quiet or arguments.dry_run)
    with stages.stage("libraries"):
        from exporter.workflows.compile import compile_model, dry_compile

    first, *others = getattr(arguments, "method", "").split(",")
    if others:
        arguments.method = first
        return _compare(arguments, [Method.named(each) for each in (first, *others)], stages)
    if arguments.dry_run:
        found = dry_compile(recipe_of(arguments), arguments.out)
        show(arguments, found, lambda: print_dry_run(found))
        return 0
    report = compile_model(recipe_of(arguments), arguments.out, stages=stages)
    show(arguments, report, lambda: _print(report, arguments.out))
    return 0 if report.passed else 1


def _compare(arguments: argparse.Namespace, methods: Sequence[Method], stages: RichStages) -> int:
    """Compile by each method, and print a row for each model."""
    from exporter.workflows.compile import compare_methods

    recipe, out = recipe_of(arguments), arguments.out
    if arguments.dry_run:
        raise RecipeError("--dry-run", f"{len(methods)} methods", "one method")
    found = compare_methods(recipe, methods, out, stages=stages)
    show(arguments, found, lambda: _print_all(found, out))
    return 0 if all(each.passed for each in found.values()) else 1


def _print_all(found: Mapping[Method, Report], out: Path) -> None:
    reports = list(found.values())
    rows = dict(zip(("dense", *found), (_dense_cells(reports[0]), *map(_cells, reports)), strict=True))
    if reports[0].original:
        rows = {AS_IT_CAME: _original_cells(reports[0]), **rows}
    columns = list(_cells(reports[0]))
    cells = [(name, *(row.get(each, "") for each in columns)) for name, row in rows.items()]
    print_table(f"{reports[0].model}, {reports[0].target}", ("", *columns), cells)
    parity = [reports[0].parity.dense, *(each.parity.pruned for each in reports)]
    skipped = [line for each in reports for line in _skipped(each)]
    told = [*(explain(each)[0] for each in parity), *dict.fromkeys(skipped)]
    told += _recorded(reports[0])
    if reports[0].speed:
        told.append(f"times are of {reports[0].timed_on}")
    print_lines([*told, f"full report: {out / 'report.html'}"])


def _original_cells(report: Report) -> dict[str, str]:
    """Return what was measured of the model as it came, by column."""
    cells = {"GMACs": f"{report.gmacs.as_it_came:.3f}"}
    if report.in_fp32 and report.in_fp32.accuracy:
        cells["top-1 (95 %)"] = _with_interval(report.in_fp32.accuracy)
    if report.original:
        cells[f"images/s, batch {report.batch}"] = f"{report.original.throughput.images_per_s:.1f}"
    return cells


def _dense_cells(report: Report) -> dict[str, str]:
    cells = {"GMACs": f"{report.gmacs.dense:.3f}"}
    if report.accuracy:
        cells["top-1 (95 %)"] = _with_interval(report.accuracy.dense)
    if report.in_fp32 and report.in_fp32.accuracy:
        cells["points lost (95 %)"] = f"{report.precision_loss:.2f}"
    if report.speed:
        cells[f"images/s, batch {report.batch}"] = f"{report.speed.throughput.dense.images_per_s:.1f}"
    if report.original:
        cells[OVER] = f"{report.original.gain.dense.median:.2f}"
    return cells


def _cells(report: Report) -> dict[str, str]:
    """Return what was measured of the pruned model, by column; losses are against the model as it came, in fp32."""
    cells, pair = {"GMACs": f"{report.gmacs.pruned:.3f}"}, report.loss
    if report.accuracy:
        cells["top-1 (95 %)"] = _with_interval(report.accuracy.pruned)
    if pair and pair.loss_interval_points:
        low, high = pair.loss_interval_points
        cells["points lost (95 %)"] = f"{pair.loss_points:.2f} ({low:.2f} to {high:.2f})"
    elif pair:
        cells["same class" if pair is report.pair else "same class as fp32"] = f"{pair.agreement:.2%}"
    if report.agreement:
        cells["cosine of embeddings"] = f"{report.agreement.embedding_cosine:.4f}"
    if report.speed:
        compared = report.speed.comparison
        low, high = compared.quartiles
        cells[f"images/s, batch {report.batch}"] = f"{report.speed.throughput.pruned.images_per_s:.1f}"
        cells["speed-up (quartiles)"] = f"{compared.speedup:.2f} ({low:.2f} to {high:.2f})"
    if report.original:
        cells[OVER] = f"{report.original.gain.pruned.median:.2f}"
    return cells


def _with_interval(accuracy: Accuracy) -> str:
    return f"{accuracy.top1:.2%} ({percent_interval(accuracy.interval)})"


def _skipped(report: Report) -> Iterator[str]:
    calibrated = report.calibration.skipped if report.calibration else {}
    return skipped_lines({"calibration": calibrated, "evaluation": report.skipped})


def _print(report: Report, out: Path) -> None:
    rows = [("GMACs", f"{report.gmacs.dense:.3f}", f"{report.gmacs.pruned:.3f}")]
    if report.gmacs.as_it_came > report.gmacs.dense:
        rows.append(("GMACs as it came", f"{report.gmacs.as_it_came:.3f}", ""))
    if report.accuracy:
        pair = report.accuracy
        rows.append(("top-1", f"{pair.dense.top1:.2%}", f"{pair.pruned.top1:.2%}"))
        dense, pruned = percent_interval(pair.dense.interval), percent_interval(pair.pruned.interval)
        rows.append(("95 % interval", dense, pruned))
        if report.in_fp32 and report.in_fp32.accuracy:
            rows.append(("top-1 as it came, fp32", f"{report.in_fp32.accuracy.top1:.2%}", ""))
    if report.pair:
        rows.append(("same class", "", f"{report.pair.agreement:.2%}"))
    if report.agreement:
        agreed = report.agreement
        rows.append(("cosine of embeddings", "", f"{agreed.embedding_cosine:.4f}"))
        if agreed.retrieval_at_1 is not None:
            rows.append(("same nearest image", "", f"{agreed.retrieval_at_1:.2%}"))
    if report.speed:
        times = report.speed.throughput
        title = f"images/s, batch {report.batch}"
        rows.append((title, f"{times.dense.images_per_s:.1f}", f"{times.pruned.images_per_s:.1f}"))
    if report.original:
        rows.append((f"{title}, as it came", f"{report.original.throughput.images_per_s:.1f}", ""))
    schedule = report.schedule
    rho = "" if schedule.rho is None else f", rho {schedule.rho:.4g}"
    print_table(f"{report.model}, {schedule.method}, {schedule.reduce}{rho}", ("", "dense", "pruned"), rows)
    if report.use:
        columns = ("layer", "least", "median", "p95", "most", "STAR")
        use = [
            (each.layer, each.least, f"{each.median:g}", f"{each.p95:g}", each.most, each.star)
            for each in report.use.layers
        ]
        print_table(f"patches kept, {report.use.images} images, {report.use.layout}", columns, use)
    lines = [f"with trtexec, in {out}:", *report.trtexec] if report.trtexec else []
    print_lines([*_lines(report), *lines, f"full report: {out / 'report.html'}"])


def _lines(report: Report) -> Iterator[str]:
    """Yield what follows the tables: parity, loss and speed."""
    yield f"images: {report.preprocessing.words}"
    yield from (explain(report.parity.dense)[0], explain(report.parity.pruned)[0])
    if report.measured_on == "noise":
        yield "measured on noise, not on photos: --images DIR adds accuracy, and agreement on images"
    if report.loss and report.loss.loss_interval_points:
        low, high = report.loss.loss_interval_points
        against = (
            f"; the dense model loses {report.precision_loss:.2f} by the precision" if report.in_fp32 else ""
        )
        against += "; against the fine-tuned weights, unpruned" if report.tuned else ""
        yield f"loss: {report.loss.loss_points:.2f} points of top-1 (95 % {low:.2f} to {high:.2f}){against}"
    yield from _recorded(report)
    if report.refit:
        yield f"refit: {report.refit.words}"
    yield from _skipped(report)
    if report.speed:
        compared = report.speed.comparison
        low, high = compared.quartiles
        yield (
            f"{compared.outcome}: {compared.speedup:.2f} × on {report.timed_on} "
            f"(quartiles {low:.2f} to {high:.2f}), E = {compared.efficiency:.2f} relative to the MAC ratio"
        )
    if report.original:
        gain = report.original.gain.pruned
        low, high = gain.quartiles
        yield f"over the model as it came, in fp32: {gain.median:.2f} × (quartiles {low:.2f} to {high:.2f})"


def _recorded(report: Report) -> list[str]:
    """Return what each fine-tuning of the weights recorded, the last one first."""
    every = report.tuned.every if report.tuned else ()
    return [f"as fine-tuned: {each.loss.loss_points:.2f} points {each.words}" for each in every]
