"""Turn the measurements of each image into checks and a report: what each allows, and whether it passed."""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from exporter.evaluation.intervals import Interval, wilson
from exporter.evaluation.parity.decisions import LayerResult, MergeResult, merge_checks
from exporter.evaluation.parity.measured import MEASURES, Judged, Measured
from exporter.evaluation.parity.report import Check, LayerParity, OutputParity, ParityReport
from exporter.evaluation.parity.tolerance import Tolerance
from exporter.vocabulary import OutputKind

__all__ = ["checks_of", "largest", "report_on"]

Array = np.ndarray[Any, Any]


def checks_of(
    faults: Sequence[str],
    measured: Measured,
    outputs: Sequence[OutputParity],
    tolerance: Tolerance,
    flip_margin: float,
) -> tuple[Check, ...]:
    """Return the checks in reading order: each is meaningful if those before it passed."""
    among = f"{measured.steady.sum()} of {measured.finite.size} images keep the same patches"
    among = "every image flips: with forced decisions" if measured.forced_alone else among
    checks = [_check("interface", len(faults), "<=", 0, "; ".join(faults))]
    for each in outputs:
        broken = int((~measured.outputs[each.name].finite).sum())
        detail = f"images with NaN or infinite {each.name}"
        checks.append(_check(f"finite_{each.name}", broken, "<=", 0, detail))
    if measured.layers:
        malformed = int(np.any([layer.malformed for layer in measured.layers], axis=0).sum())
        margin = max(largest(layer.margin[layer.flipped]) or 0.0 for layer in measured.layers)
        checks += [
            _tracing(outputs),
            _check("kept_indices", malformed, "<=", 0, "images with indices out of order, range or count"),
            _check("kept_sets", margin, "<", flip_margin, f"{measured.flipped.sum()} images flip"),
            *merge_checks(measured.merges, tolerance.merge_gap),
        ]
    for each in outputs:
        allowed = each.max_abs_diff_allowed
        diff = each.max_abs_diff_forced if measured.forced_alone else each.max_abs_diff
        checks.append(_check(each.name, diff, "<=", allowed, among if measured.layers else ""))
        if measured.layers:
            checks.append(_check(f"forced_{each.name}", each.max_abs_diff_forced, "<=", allowed))
    for each in outputs:
        checks += _agreement_checks(each, tolerance, measured)
    return tuple(checks)


def _agreement_checks(output: OutputParity, tolerance: Tolerance, measured: Measured) -> list[Check]:
    """Compare classes, or the lowest cosine: of images that keep the same patches, then classes of all images.

    If every image flips, those with forced decisions take the place of the first.
    """
    forced = measured.forced_alone
    agreement = output.agreement_forced if forced else output.agreement
    if output.kind != OutputKind.LOGITS:
        return [_check(f"{output.name}_{output.measure}", agreement, ">=", tolerance.cosine)]
    interval = output.interval_forced if forced else output.interval
    checks = [_equal_classes("top1", agreement, interval, tolerance.top1_agreement)]
    if measured.layers:
        every, allowed = output.agreement_all, tolerance.top1_agreement_all
        checks.append(_equal_classes("top1_all", every, output.interval_all, allowed))
    return checks


def _equal_classes(name: str, share: float | None, interval: Interval | None, allowed: float) -> Check:
    """Check that the interval of a share reaches what is allowed: a few images do not fail by chance."""
    if interval is None:
        return _check(name, None, ">=", allowed)
    low, high = interval
    detail = f"{share:.3g} of the images, 95 % interval {low:.3g} to {high:.3g}"
    return _check(name, high, ">=", allowed, detail)


def _tracing(outputs: Sequence[OutputParity]) -> Check:
    """Check the output in which the tracing variant differs most, relative to what is allowed."""
    measured = [(each.max_abs_diff_tracing, each) for each in outputs]
    worst, output = max(
        measured, key=lambda pair: -1.0 if pair[0] is None else pair[0] / pair[1].max_abs_diff_allowed
    )
    return _check("tracing_is_shipped", worst, "<=", output.max_abs_diff_allowed, _named(outputs, output))


def _named(outputs: Sequence[OutputParity], output: OutputParity) -> str:
    return output.name if len(outputs) > 1 else ""


def _check(name: str, measured: float | None, relation: str, allowed: float, detail: str = "") -> Check:
    if measured is None:
        return Check(name, None, relation, allowed, False, detail)
    holds = {"<=": measured <= allowed, "<": measured < allowed, ">=": measured >= allowed}
    return Check(name, measured, relation, allowed, holds[relation], detail)


def largest(values: Array) -> float | None:
    """The largest of the values, None where there is none."""
    return float(values.max()) if values.size else None


OF_LOGITS = (
    "logit_std",
    "max_abs_logit_diff_allowed",
    "max_abs_logit_diff",
    "max_abs_logit_diff_forced",
    "max_abs_logit_diff_tracing",
    "logit_diff_needed_per_std",
    "top1_agreement",
    "top5_agreement",
    "top1_agreement_all",
    "top1_interval_all",
    "top5_agreement_all",
)


def report_on(
    names: tuple[str, str],
    faults: Sequence[str],
    measured: Measured,
    judged: Sequence[Judged],
    tolerance: Tolerance,
    *,
    flip_margin: float,
) -> ParityReport:
    """Return the report; `names` are those of the reference and of the shipped model.

    `flip_margin` is the tolerance of the method: of log scores for STAR, of mass for a-STAR.
    """
    layers = tuple(map(_layer, measured.layers, measured.merges or repeat(None)))
    margins = [layer.largest_flip_margin for layer in layers if layer.largest_flip_margin is not None]
    outputs = tuple(_output(each, measured, tolerance) for each in judged)
    checks = checks_of(faults, measured, outputs, tolerance, flip_margin)
    return ParityReport(
        reference=names[0],
        shipped=names[1],
        images=measured.finite.size,
        finite_images=int(measured.finite.sum()),
        tolerance=tolerance,
        kept_set_overlap=min((layer.kept_set_overlap for layer in layers), default=None),
        flipped_images=int(measured.flipped.sum()),
        largest_flip_margin=max(margins, default=None),
        first_differing_layer=next((layer.layer for layer in layers if layer.differs), None),
        layers=layers,
        outputs=outputs,
        **_of_logits(outputs, measured),
        checks=checks,
        passed=all(check.passed for check in checks),
    )


def _output(judged: Judged, measured: Measured, tolerance: Tolerance) -> OutputParity:
    output, std = judged.output, judged.std
    own, finite, steady = measured.outputs[output.name], measured.finite, measured.steady
    diff = largest(own.diff[steady])
    forced = largest(own.forced_diff[finite]) if measured.layers else None
    tracing = largest(own.tracing_diff[finite]) if measured.layers else None
    measure = MEASURES[output.kind][0]
    agreements = own.agreements[measure]
    forced_agreements = own.forced_agreements[measure][finite] if measured.layers else np.empty(0)
    summed, limits = SUMMARIES[measure]
    return OutputParity(
        name=output.name,
        kind=output.kind,
        std=std,
        max_abs_diff_allowed=tolerance.logit_diff_per_std * std,
        max_abs_diff=diff,
        max_abs_diff_forced=forced,
        max_abs_diff_tracing=tracing,
        diff_needed_per_std=max(
            (each / std for each in (diff, forced, tracing) if each is not None), default=None
        ),
        measure=measure,
        agreement=summed(agreements[steady]),
        interval=limits(agreements[steady]),
        agreement_all=summed(agreements[finite]),
        interval_all=limits(agreements[finite]),
        agreement_forced=summed(forced_agreements),
        interval_forced=limits(forced_agreements),
    )


def _of_logits(outputs: Sequence[OutputParity], measured: Measured) -> dict[str, Any]:
    """Return the values of OF_LOGITS; None if the model returns no logits."""
    logits = next((each for each in outputs if each.kind == OutputKind.LOGITS), None)
    if logits is None:
        return dict.fromkeys(OF_LOGITS)
    top5 = measured.outputs[logits.name].agreements["top5"]
    values = (
        logits.std,
        logits.max_abs_diff_allowed,
        logits.max_abs_diff,
        logits.max_abs_diff_forced,
        logits.max_abs_diff_tracing,
        logits.diff_needed_per_std,
        logits.agreement,
        _mean(top5[measured.steady]),
        logits.agreement_all,
        logits.interval_all,
        _mean(top5[measured.finite]),
    )
    return dict(zip(OF_LOGITS, values, strict=True))


def _layer(result: LayerResult, merge: MergeResult | None) -> LayerParity:
    return LayerParity(
        layer=result.layer,
        patches=float(result.patches.mean()),
        kept=float(result.kept.mean()),
        kept_set_overlap=float(result.overlap.mean()),
        differing_images=int(result.differs.sum()),
        flipped_images=int(result.flipped.sum()),
        largest_flip_margin=largest(result.margin[result.flipped]),
        merge_agreement=None if merge is None else float(merge.agreement.mean()),
        merge_flipped_images=0 if merge is None else int(merge.flipped.sum()),
        largest_merge_gap=None if merge is None else largest(merge.gap[merge.flipped]),
    )


def _least(values: Array) -> float | None:
    return float(values.min()) if values.size else None


def _mean(values: Array) -> float | None:
    return float(values.mean()) if values.size else None


def _interval(hits: Array) -> Interval | None:
    return wilson(float(hits.sum()), hits.size) if hits.size else None


def _no_interval(values: Array) -> None:
    """A lowest value is not a share."""


# How a measure of images is summarised for a model, and the interval of that.
SUMMARIES: dict[str, tuple[Callable[[Array], float | None], Callable[[Array], Interval | None]]] = {
    "top1": (_mean, _interval),
    "cosine": (_least, _no_interval),
}
