"""From what was measured on each image to the checks and the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.evaluation.parity.kept_sets import LayerResult
from exporter.evaluation.parity.report import Check, LayerParity, ParityReport
from exporter.evaluation.parity.tolerance import Tolerance

__all__ = ["Measured", "Spread", "report_on"]

Array = np.ndarray[Any, Any]


class Spread:
    """Standard deviation of numbers that arrive in batches."""

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, values: Array) -> None:
        """Take in a batch; sums of squares are about each mean, so that large logits lose no digits."""
        shift = float(values.mean()) - self._mean
        total = self._count + values.size
        self._squares += float(values.var()) * values.size + shift**2 * self._count * values.size / total
        self._mean += shift * values.size / total
        self._count = total

    @property
    def std(self) -> float:
        """Over every value so far."""
        return float(np.sqrt(self._squares / self._count))


@dataclass(frozen=True)
class Measured:
    """One number an image, in every array; `layers` as `compare_layers` gives them, none for a dense model."""

    finite: Array
    diff: Array
    tracing_diff: Array
    forced_diff: Array
    top1: Array
    top5: Array
    layers: list[LayerResult]

    @staticmethod
    def joined(parts: Sequence["Measured"]) -> "Measured":
        """The batches as one."""
        layers = [_join(results) for results in zip(*(part.layers for part in parts), strict=True)]
        names = ("finite", "diff", "tracing_diff", "forced_diff", "top1", "top5")
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return Measured(layers=layers, **arrays)

    @property
    def flipped(self) -> Array:
        """Whether an image's kept sets differ in any layer."""
        return np.any([np.zeros_like(self.finite), *(layer.flipped for layer in self.layers)], axis=0)

    @property
    def steady(self) -> Array:
        """Images whose logits differ by arithmetic alone: finite, and the same patches kept in every layer."""
        return self.finite & ~self.flipped

    @property
    def worst(self) -> tuple[float | None, float | None, float | None]:
        """Largest difference of a logit: shipped to reference, the same with forced indices, shipped to variant."""
        diff = _largest(self.diff[self.steady])
        if not self.layers:
            return diff, None, None
        return diff, _largest(self.forced_diff[self.finite]), _largest(self.tracing_diff[self.finite])


def report_on(
    names: tuple[str, str],
    faults: Sequence[str],
    measured: Measured,
    logit_std: float,
    tolerance: Tolerance,
    *,
    flip_margin: float,
) -> ParityReport:
    """The report on a reference and a shipped model, in this order of `names`.

    `flip_margin` is the row of the tolerance that suits the method: of log scores, or of mass.
    """
    finite, steady = measured.finite, measured.steady
    layers = tuple(_layer(result) for result in measured.layers)
    margins = [layer.largest_flip_margin for layer in layers if layer.largest_flip_margin is not None]
    diff, forced, variant = measured.worst
    needed = max((value / logit_std for value in measured.worst if value is not None), default=None)
    checks = _checks(faults, measured, tolerance, logit_std, flip_margin)
    return ParityReport(
        reference=names[0],
        shipped=names[1],
        images=finite.size,
        finite_images=int(finite.sum()),
        tolerance=tolerance,
        logit_std=logit_std,
        max_abs_logit_diff_allowed=tolerance.logit_diff_per_std * logit_std,
        max_abs_logit_diff=diff,
        max_abs_logit_diff_forced=forced,
        max_abs_logit_diff_tracing=variant,
        logit_diff_needed_per_std=needed,
        kept_set_overlap=min((layer.kept_set_overlap for layer in layers), default=None),
        flipped_images=int(measured.flipped.sum()),
        largest_flip_margin=max(margins, default=None),
        first_differing_layer=next((layer.layer for layer in layers if layer.differing_images), None),
        layers=layers,
        top1_agreement=_mean(measured.top1[steady]),
        top5_agreement=_mean(measured.top5[steady]),
        top1_agreement_all=_mean(measured.top1[finite]),
        top5_agreement_all=_mean(measured.top5[finite]),
        checks=checks,
        passed=all(check.passed for check in checks),
    )


def _checks(
    faults: Sequence[str], measured: Measured, tolerance: Tolerance, logit_std: float, flip_margin: float
) -> tuple[Check, ...]:
    """In the order in which a person would look: each one makes sense where those before it passed."""
    allowed = tolerance.logit_diff_per_std * logit_std
    diff, forced, variant = measured.worst
    among = f"{measured.steady.sum()} of {measured.finite.size} images keep the same patches"
    broken = int((~measured.finite).sum())
    checks = [
        _check("interface", len(faults), "<=", 0, "; ".join(faults)),
        _check("finite_logits", broken, "<=", 0, "images with NaN or infinite logits"),
    ]
    if measured.layers:
        malformed = int(np.any([layer.malformed for layer in measured.layers], axis=0).sum())
        margin = max(_largest(layer.margin[layer.flipped]) or 0.0 for layer in measured.layers)
        checks += [
            _check("tracing_is_shipped", variant, "<=", allowed),
            _check("kept_indices", malformed, "<=", 0, "images with indices out of order, range or number"),
            _check("kept_sets", margin, "<", flip_margin, f"{measured.flipped.sum()} images flip"),
            _check("logits", diff, "<=", allowed, among),
            _check("forced_logits", forced, "<=", allowed),
        ]
    else:
        checks.append(_check("logits", diff, "<=", allowed))
    agreement = _mean(measured.top1[measured.steady])
    checks.append(_check("top1", agreement, ">=", tolerance.top1_agreement))
    return tuple(checks)


def _check(name: str, measured: float | None, relation: str, allowed: float, detail: str = "") -> Check:
    if measured is None:
        return Check(name, None, relation, allowed, False, detail)
    holds = {"<=": measured <= allowed, "<": measured < allowed, ">=": measured >= allowed}
    return Check(name, measured, relation, allowed, holds[relation], detail)


def _layer(result: LayerResult) -> LayerParity:
    return LayerParity(
        layer=result.layer,
        patches=float(result.patches.mean()),
        kept=float(result.kept.mean()),
        kept_set_overlap=float(result.overlap.mean()),
        differing_images=int(result.differs.sum()),
        flipped_images=int(result.flipped.sum()),
        largest_flip_margin=_largest(result.margin[result.flipped]),
    )


def _join(parts: Sequence[LayerResult]) -> LayerResult:
    names = ("patches", "kept", "overlap", "differs", "flipped", "margin", "malformed")
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return LayerResult(parts[0].layer, **arrays)


def _largest(values: Array) -> float | None:
    return float(values.max()) if values.size else None


def _mean(values: Array) -> float | None:
    return float(values.mean()) if values.size else None
