"""The checks of a comparison: what each measures, and what it allows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from exporter.evaluation.parity.measured import Measured
from exporter.evaluation.parity.merges import merge_checks
from exporter.evaluation.parity.report import Check, OutputParity
from exporter.evaluation.parity.tolerance import Tolerance
from exporter.evaluation.proportions import Interval
from exporter.vocabulary import OutputKind

__all__ = ["checks_of", "largest"]

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
