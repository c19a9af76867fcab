"""Turn the measurements of each image into checks and a report."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from exporter.evaluation.parity.agreement import MEASURES
from exporter.evaluation.parity.kept_sets import LayerResult
from exporter.evaluation.parity.merges import MergeResult, merge_checks
from exporter.evaluation.parity.report import Check, LayerParity, OutputParity, ParityReport
from exporter.evaluation.parity.tolerance import Tolerance
from exporter.records import Output
from exporter.vocabulary import OutputKind

__all__ = ["Judged", "Measured", "MeasuredOutput", "Spread", "report_on"]

Array = np.ndarray[Any, Any]
ResultT = TypeVar("ResultT", LayerResult, MergeResult)

# The fields of a report about logits.
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
    "top5_agreement_all",
)


class Spread:
    """Standard deviation of values that arrive in batches."""

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, values: Array) -> None:
        """Add a batch; squares are summed around the means, so large logits lose no digits."""
        shift = float(values.mean()) - self._mean
        total = self._count + values.size
        self._squares += float(values.var()) * values.size + shift**2 * self._count * values.size / total
        self._mean += shift * values.size / total
        self._count = total

    @property
    def std(self) -> float:
        """Standard deviation of all values so far."""
        return float(np.sqrt(self._squares / self._count))


@dataclass(frozen=True)
class Judged:
    """An output, and the standard deviation of the reference's values in it."""

    output: Output
    std: float


@dataclass(frozen=True)
class MeasuredOutput:
    """One value per image in every array; agreements by the measures of the output's kind."""

    finite: Array
    diff: Array
    tracing_diff: Array
    forced_diff: Array
    agreements: dict[str, Array]
    forced_agreements: dict[str, Array]

    @staticmethod
    def joined(parts: Sequence["MeasuredOutput"]) -> "MeasuredOutput":
        """The batches as one."""
        names = ("finite", "diff", "tracing_diff", "forced_diff")
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        own, forced = (
            {name: np.concatenate([part[name] for part in measures]) for name in measures[0]}
            for measures in ([part.agreements for part in parts], [part.forced_agreements for part in parts])
        )
        return MeasuredOutput(agreements=own, forced_agreements=forced, **arrays)


@dataclass(frozen=True)
class Measured:
    """Outputs by name, and `layers` and `merges` from `compare_merges`: empty for a dense model.

    `merges` is empty if patches are dropped.
    """

    outputs: dict[str, MeasuredOutput]
    layers: list[LayerResult]
    merges: list[MergeResult]

    @staticmethod
    def joined(parts: Sequence["Measured"]) -> "Measured":
        """The batches as one."""
        layers = [_join(results) for results in zip(*(part.layers for part in parts), strict=True)]
        merges = [_join(results) for results in zip(*(part.merges for part in parts), strict=True)]
        names = parts[0].outputs
        outputs = {name: MeasuredOutput.joined([part.outputs[name] for part in parts]) for name in names}
        return Measured(outputs, layers, merges)

    @property
    def finite(self) -> Array:
        """Whether all values of an image are finite, in every output."""
        return np.all([each.finite for each in self.outputs.values()], axis=0)

    @property
    def flipped(self) -> Array:
        """Whether an image's decisions differ in any layer."""
        flips = [each.flipped for each in self.layers] + [each.flipped for each in self.merges]
        return np.any([np.zeros_like(self.finite), *flips], axis=0)

    @property
    def forced_alone(self) -> bool:
        """Whether outputs can be compared only with forced decisions: every image flips, and tokens merge.

        Many patches nearly tie between two survivors. In INT8, every image merges at least one of them differently.
        """
        return bool(self.merges) and not self.steady.any()

    @property
    def steady(self) -> Array:
        """Images whose outputs differ only by arithmetic: finite, with equal decisions in every layer."""
        return self.finite & ~self.flipped


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
    checks = _checks(faults, measured, outputs, tolerance, flip_margin)
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
    diff = _largest(own.diff[steady])
    forced = _largest(own.forced_diff[finite]) if measured.layers else None
    tracing = _largest(own.tracing_diff[finite]) if measured.layers else None
    measure = MEASURES[output.kind][0]
    summed = SUMMARIES[measure]
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
        agreement=summed(own.agreements[measure][steady]),
        agreement_all=summed(own.agreements[measure][finite]),
        agreement_forced=summed(own.forced_agreements[measure][finite]) if measured.layers else None,
    )


def _of_logits(outputs: Sequence[OutputParity], measured: Measured) -> dict[str, float | None]:
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
        _mean(top5[measured.finite]),
    )
    return dict(zip(OF_LOGITS, values, strict=True))


def _checks(
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
        margin = max(_largest(layer.margin[layer.flipped]) or 0.0 for layer in measured.layers)
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
        is_class = each.kind == OutputKind.LOGITS
        name = each.measure if is_class else f"{each.name}_{each.measure}"
        least = tolerance.top1_agreement if is_class else tolerance.cosine
        agreement = each.agreement_forced if measured.forced_alone else each.agreement
        checks.append(_check(name, agreement, ">=", least))
    return tuple(checks)


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


def _layer(result: LayerResult, merge: MergeResult | None) -> LayerParity:
    return LayerParity(
        layer=result.layer,
        patches=float(result.patches.mean()),
        kept=float(result.kept.mean()),
        kept_set_overlap=float(result.overlap.mean()),
        differing_images=int(result.differs.sum()),
        flipped_images=int(result.flipped.sum()),
        largest_flip_margin=_largest(result.margin[result.flipped]),
        merge_agreement=None if merge is None else float(merge.agreement.mean()),
        merge_flipped_images=0 if merge is None else int(merge.flipped.sum()),
        largest_merge_gap=None if merge is None else _largest(merge.gap[merge.flipped]),
    )


def _join(parts: Sequence[ResultT]) -> ResultT:
    """Join one layer's results over all batches."""
    names = [each.name for each in fields(parts[0]) if each.name != "layer"]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return replace(parts[0], **arrays)


def _largest(values: Array) -> float | None:
    return float(values.max()) if values.size else None


def _least(values: Array) -> float | None:
    return float(values.min()) if values.size else None


def _mean(values: Array) -> float | None:
    return float(values.mean()) if values.size else None


# How a measure of images is summarised for a model.
SUMMARIES = {"top1": _mean, "cosine": _least}
