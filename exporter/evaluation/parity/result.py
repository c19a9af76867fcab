"""Turn the measurements of each image into checks and a report."""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from exporter.evaluation.parity.agreement import MEASURES
from exporter.evaluation.parity.checks import checks_of, largest
from exporter.evaluation.parity.kept_sets import LayerResult
from exporter.evaluation.parity.measured import Judged, Measured
from exporter.evaluation.parity.merges import MergeResult
from exporter.evaluation.parity.report import LayerParity, OutputParity, ParityReport
from exporter.evaluation.parity.tolerance import Tolerance
from exporter.evaluation.proportions import Interval, wilson
from exporter.vocabulary import OutputKind

__all__ = ["report_on"]

Array = np.ndarray[Any, Any]

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
