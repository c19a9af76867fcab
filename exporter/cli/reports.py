"""Print the reports of compilations: a sentence of each, and one table of what they cost and gain."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

from exporter.cli.output import (
    print_lines,
    print_table,
    schedule_words,
    skipped_lines,
)
from exporter.core.base.vocabulary import Method
from exporter.engines.trtexec import SCRIPT
from exporter.measure.batch_sweep import AS_IT_CAME
from exporter.report import words
from exporter.report.parity_words import explain
from exporter.report.record import Report

# The row of the dense file.
UNPRUNED = "unpruned"


def print_reports(by_method: Mapping[Method, Report], out: Path) -> None:
    """Print what each method gains and costs, a row for each model, then what else was measured."""
    reports = list(by_method.values())
    first, alone, columns = reports[0], len(reports) == 1, _cells(reports[0])
    table = [_row(UNPRUNED, columns, "dense")]
    if (
        first.quality.fp32_losses
        or (first.speed.at and first.speed.at.as_it_came)
        or first.gmacs["as_it_came"] > first.gmacs["dense"]
    ):
        table.insert(0, _row(AS_IT_CAME, columns, AS_IT_CAME))
    for method, report in by_method.items():
        table.append(_row(method, _cells(report), "pruned"))
    print_lines(
        f"{method}: {words.sentences(report)}" for method, report in by_method.items()
    )
    saved = f"{first.saved:.1%} of your model's multiply-adds saved"
    how = schedule_words(first.schedule, saved) if alone else first.target
    batch = f", batch {first.speed.batch}" if first.speed.at else ""
    print_table(f"{first.model.name}, {how}{batch}", ("", *columns), table)
    lines = list(_lines(reports))
    if alone:
        _print_use(first)
        lines += _lines_of_one(first)
        if (out / SCRIPT).is_file():
            lines.append(f"with TensorRT's trtexec alone: sh {SCRIPT} in {out}")
    print_lines([*lines, f"full report: {out / 'report.html'}"])


def _row(name: str, columns: Mapping[str, Mapping[str, str]], role: str) -> list[str]:
    return [name, *(column.get(role, "") for column in columns.values())]


def _cells(report: Report) -> dict[str, dict[str, str]]:
    """Return what was measured, by column and model; points are against the user's model, in fp32."""
    gmacs, quality = report.gmacs, report.quality
    macs = {AS_IT_CAME: gmacs["as_it_came"]}
    macs |= {role: gmacs[role] for role in ("dense", "pruned")}
    cells = {"GMACs": {role: f"{count:.3f}" for role, count in macs.items()}}
    if quality.accuracy:
        cells["top-1"] = {
            role: f"{part.top1:.2%}" for role, part in vars(quality.accuracy).items()
        }
        # Of a target in fp32 the unpruned file is measured alone: it computes your model, to rounding.
        came = quality.fp32_accuracy
        cells["top-1"][AS_IT_CAME] = f"{came.top1:.2%}" if came else "as unpruned"
    pair = quality.loss
    if pair and pair.loss_points is not None:
        changes = {"pruned": words.points(pair.loss_points)}
        if quality.fp32_losses:
            changes["dense"] = words.points(quality.precision_loss)
        cells["points"] = changes
    elif pair:
        cells["same class"] = {"pruned": f"{pair.agreement:.2%}"}
    for measured in (quality.agreement, quality.deviations):
        if measured:
            said = words.likeness(measured)
            cells[said.column] = {"pruned": said.value}
    return cells | _speed_cells(report)


def _speed_cells(report: Report) -> dict[str, dict[str, str]]:
    """Return the columns of speed, where it was measured: over the unpruned export, and over the user's model."""
    at = report.speed.at
    if at is None:
        return {}
    times = dict(vars(at.throughput))
    gains = {"× unpruned": {"pruned": at.speed_up.median}}
    if original := at.as_it_came:
        times[AS_IT_CAME] = original.throughput
        by_export = original.by_export.median
        gains["× yours"] = {"dense": by_export, "pruned": original.whole}
    rates = {role: f"{time.images_per_s:.1f}" for role, time in times.items()}
    ratios = {
        column: {role: f"{gain:.2f}" for role, gain in by_role.items()}
        for column, by_role in gains.items()
    }
    return {"images/s": rates, **ratios}


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
    images = f"images: {words.preprocessing(first.model.preprocessing)}, by {first.model.sources.preprocessing}"
    yield from wrap(images, 80, subsequent_indent="  ")
    for parity in (first.parity.dense, *(report.parity.pruned for report in reports)):
        yield explain(parity)[0]
    if first.measured_on == "noise":
        yield "measured on noise, not on photos: --images DIR adds accuracy, and agreement on images"
    yield from dict.fromkeys(line for report in reports for line in _skipped(report))
    for report in reports:
        yield from (f"{report.schedule.method}, {line}" for line in _measured(report))
    for tuned in first.tuned.every if first.tuned else ():
        yield f"as fine-tuned: {words.loss(tuned.loss)}, {words.tuned(tuned)}"


def _measured(report: Report) -> Iterator[str]:
    """Yield what the sentence and the table do not say of a model."""
    if at := report.speed.at:
        quartiles = words.interval(at.speed_up.quartiles)
        yield f"speed-up over the unpruned export on {words.timed_on(report)}: quartiles {quartiles}"
    if report.refit:
        yield f"refit: {words.refit(report.refit)}"
    if likeness := report.quality.likeness:
        for name, value in words.likeness(likeness).rows.items():
            yield f"{name}: {value}"


def _skipped(report: Report) -> Iterator[str]:
    calibrated = report.calibration.skipped if report.calibration else {}
    return skipped_lines(
        {"calibration": calibrated, "evaluation": report.quality.skipped}
    )


def _lines_of_one(report: Report) -> Iterator[str]:
    """Yield what the table has no place for."""
    loss, pair = report.quality.loss, report.quality.pair
    if loss and loss.loss_points is not None and report.tuned:
        yield "points are against the fine-tuned weights, unpruned"
    if pair and report.quality.accuracy:  # without labels, the table has it
        same = f"{pair.agreement:.2%} of the images"
        yield f"the same class as from the unpruned {words.export(report)} on {same}"
