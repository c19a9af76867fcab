"""Judge a comparison: every measured number is checked against what the tolerance allows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np

from exporter.core.base.intervals import wilson
from exporter.core.base.records import Output
from exporter.core.base.tensor_names import Array
from exporter.core.verify.decisions import LayerResult, MergeResult
from exporter.core.verify.differences import Differences, OutputDifferences
from exporter.core.verify.record import (
    Check,
    LayerParity,
    OutputAgreement,
    OutputParity,
    ParityReport,
)
from exporter.core.verify.tolerance import Tolerance

# Measures that are shares of images; another is the lowest of any image.
SHARES = ("top1", "same_labels")
FP16_MOST = float(np.finfo(np.float16).max)
# In place of the deviation of a value that does not vary: it has to be the same.
TINY = float(np.finfo(np.float64).tiny)


def _checks_of(
    faults: Sequence[str],
    measured: Differences,
    outputs: Sequence[OutputParity],
    tolerance: Tolerance,
    flip_margin: float,
) -> tuple[Check, ...]:
    """Return the checks in reading order: each is meaningful if those before it passed."""
    among = f"{measured.steady.sum()} of {measured.finite.size} images keep the same patches"
    among = (
        "every image flips: with forced decisions" if measured.forced_alone else among
    )
    differing = "; ".join(faults) or "differing names, shapes or types"
    checks = [_check("interface", len(faults), "<=", 0, differing)]
    for output in outputs:
        broken = int((~measured.outputs[output.name].finite).sum())
        detail = f"images with NaN or infinite {output.name}"
        checks.append(_check(f"finite_{output.name}", broken, "<=", 0, detail))
    if measured.layers:
        checks += [
            _tracing(outputs),
            *_kept_checks(measured, flip_margin),
            *_merge_checks(measured.merges, tolerance.merge_gap),
        ]
    for output in outputs:
        allowed = output.max_abs_diff_allowed
        forced = output.max_abs_diff_forced
        diff = forced if measured.forced_alone else output.max_abs_diff
        details = [output.worst, among if measured.layers else ""]
        detail = ", ".join(filter(None, details))
        checks.append(_check(output.name, diff, "<=", allowed, detail))
        if measured.layers:
            name = f"forced_{output.name}"
            checks.append(_check(name, forced, "<=", allowed, output.worst))
    for output in outputs:
        checks += _agreement_checks(output, tolerance, measured)
    return tuple(checks)


def _agreement_checks(
    output: OutputParity, tolerance: Tolerance, measured: Differences
) -> list[Check]:
    """Compare classes, or the lowest cosine: of images that keep the same patches, then classes of all images.

    If every image flips, those with forced decisions take the place of the first.
    """
    forced = measured.forced_alone
    agreement = output.agreement_forced if forced else output.agreement
    if not output.measure:
        return []
    if output.measure not in SHARES:
        name = f"{output.name}_{output.measure}"
        return [_check(name, agreement.value, ">=", tolerance.cosine)]
    clear = _clear(measured.outputs[output.name], output.std, tolerance)
    images = measured.finite if forced else measured.steady
    tied = bool(images.any()) and not (images & clear).any()
    measure, allowed = output.measure, tolerance.top1_agreement
    checks = [_equal_classes(measure, agreement, allowed, tied=tied)]
    if measured.layers:
        allowed = tolerance.top1_agreement_all
        tied = bool(measured.finite.any()) and not (measured.finite & clear).any()
        checks.append(
            _equal_classes(f"{measure}_all", output.agreement_all, allowed, tied=tied)
        )
    return checks


def _clear(differences: OutputDifferences, std: float, tolerance: Tolerance) -> Array:
    """Return of which images the reference's best class is clear of the next, [images]."""
    return differences.class_margin >= tolerance.class_margin * std


def _equal_classes(
    name: str, agreement: OutputAgreement, allowed: float, *, tied: bool
) -> Check:
    """Check that the interval of a share reaches what is allowed: a few images do not fail by chance.

    `tied` says that there are images, but no clear class among them.
    """
    if tied:
        return Check(
            name,
            None,
            ">=",
            allowed,
            True,
            "the best two classes nearly tie, or labels are nearly 0, in every image",
        )
    if agreement.interval is None:
        return _check(name, None, ">=", allowed)
    low, high = agreement.interval
    equal = f"equal on {agreement.value:.2%} of the images"
    detail = f"{equal}, 95 % interval {low:.3g} to {high:.3g}"
    return _check(name, high, ">=", allowed, detail)


def _kept_checks(measured: Differences, allowed: float) -> list[Check]:
    """Check that indices are valid and the margin of every flip is below `allowed`."""
    malformed = int(
        np.any([layer.malformed for layer in measured.layers], axis=0).sum()
    )
    margin = max(
        _largest(layer.margin[layer.flipped]) or 0.0 for layer in measured.layers
    )
    broken = "images with indices out of order, range or count"
    return [
        _check("kept_indices", malformed, "<=", 0, broken),
        _check(
            "kept_sets", margin, "<", allowed, f"{measured.flipped.sum()} images flip"
        ),
    ]


def _merge_checks(merges: Sequence[MergeResult], allowed: float) -> list[Check]:
    """Check that indices are valid and the gap of every flip is below `allowed`; [] if no tokens merge."""
    if not merges:
        return []
    malformed = int(np.any([merge.malformed for merge in merges], axis=0).sum())
    flipped = sum(int(merge.flipped.sum()) for merge in merges)
    gap = max(float(merge.gap[merge.flipped].max(initial=0.0)) for merge in merges)
    broken = "images with an index out of range, or a survivor that joins another"
    return [
        _check("merge_indices", malformed, "<=", 0, broken),
        _check("merges", gap, "<", allowed, f"{flipped} images merge differently"),
    ]


def _tracing(outputs: Sequence[OutputParity]) -> Check:
    """Check the output in which the tracing variant differs most, relative to what is allowed."""

    def share_of_allowed(output: OutputParity) -> float:
        diff = output.max_abs_diff_tracing
        return -1.0 if diff is None else diff / max(output.max_abs_diff_allowed, TINY)

    worst = max(outputs, key=share_of_allowed)
    name = worst.name if len(outputs) > 1 else ""
    diff = worst.max_abs_diff_tracing
    allowed = worst.max_abs_diff_allowed
    return _check("tracing_is_shipped", diff, "<=", allowed, name)


def _check(
    name: str, measured: float | None, relation: str, allowed: float, detail: str = ""
) -> Check:
    if measured is None:
        return Check(name, None, relation, allowed, False, detail)
    holds = {
        "<=": measured <= allowed,
        "<": measured < allowed,
        ">=": measured >= allowed,
    }
    return Check(name, measured, relation, allowed, holds[relation], detail)


def _largest(values: Array) -> float | None:
    """The largest of the values, None where there is none."""
    return float(values.max()) if values.size else None


def report_on(
    names: tuple[str, str],
    faults: Sequence[str],
    measured: Differences,
    deviations: Mapping[Output, Array],
    tolerance: Tolerance,
    *,
    flip_margin: float,
    class_names: Sequence[str] = (),
) -> ParityReport:
    """Return the report; `names` are those of the reference and of the shipped model.

    `deviations` are the standard deviations of the reference's values in each output, one in each unit.
    `flip_margin` is the tolerance of the method: of log scores for STAR, of mass for a-STAR. `class_names` are
    those of a head's numbers, none where they are not known.
    """
    layers = tuple(map(_layer, measured.layers, measured.merges or repeat(None)))
    margins = [
        layer.largest_flip_margin
        for layer in layers
        if layer.largest_flip_margin is not None
    ]
    outputs = tuple(
        _output(output, std, measured, tolerance, class_names)
        for output, std in deviations.items()
    )
    checks = _checks_of(faults, measured, outputs, tolerance, flip_margin)
    return ParityReport(
        reference=names[0],
        shipped=names[1],
        images=measured.finite.size,
        tolerance=tolerance,
        kept_set_overlap=min(
            (layer.kept_set_overlap for layer in layers), default=None
        ),
        flipped_images=int(measured.flipped.sum()),
        largest_flip_margin=max(margins, default=None),
        first_differing_layer=next(
            (layer.layer for layer in layers if layer.differs), None
        ),
        layers=layers,
        outputs=outputs,
        checks=checks,
        passed=all(check.passed for check in checks),
    )


def _output(
    output: Output,
    stds: Array,
    measured: Differences,
    tolerance: Tolerance,
    class_names: Sequence[str],
) -> OutputParity:
    differences = measured.outputs[output.name]
    finite = measured.finite
    steady = measured.steady
    unit = _worst_unit(differences, stds, measured)
    std = float(stds[unit])
    measure = next(iter(differences.agreements), "")
    clear = _clear(differences, std, tolerance)
    diff = _largest(differences.diff[steady, unit])
    forced = None
    tracing = None
    forced_agreement = OutputAgreement()
    if measured.layers:
        forced = _largest(differences.forced_diff[finite, unit])
        tracing = _largest(differences.tracing_diff[finite, unit])
        forced_agreement = _agreement(
            measure, differences.forced_agreements, finite & clear
        )
    largest = [value for value in (diff, forced, tracing) if value is not None]
    return OutputParity(
        name=output.name,
        kind=output.kind,
        std=std,
        max_abs_diff_allowed=tolerance.logit_diff_per_std * std,
        max_abs_diff=diff,
        max_abs_diff_forced=forced,
        max_abs_diff_tracing=tracing,
        diff_needed_per_std=max(largest) / std if largest and std else None,
        measure=measure,
        agreement=_agreement(measure, differences.agreements, steady & clear),
        agreement_all=_agreement(measure, differences.agreements, finite & clear),
        agreement_forced=forced_agreement,
        worst=output.numbers(class_names)[unit] if output.units > 1 else "",
    )


def _worst_unit(
    differences: OutputDifferences, stds: Array, measured: Differences
) -> int:
    """Return the unit with the largest difference of any kind, in its deviations."""
    largest = np.concatenate(
        [
            differences.diff[measured.steady],
            differences.forced_diff[measured.finite],
            differences.tracing_diff[measured.finite],
        ]
    ).max(axis=0, initial=0.0)
    with np.errstate(over="ignore"):
        return int((largest / np.maximum(stds, TINY)).argmax())


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


def _agreement(
    measure: str, by_measure: Mapping[str, Array], images: Array
) -> OutputAgreement:
    """Return the agreement of the chosen images, [images] of bools; `by_measure` has a value an image."""
    if measure not in by_measure or not images.any():
        return OutputAgreement()
    values = by_measure[measure][images]
    if measure not in SHARES:
        return OutputAgreement(float(values.min()))
    interval = wilson(float(values.sum()), values.size)
    top5 = by_measure.get("top5")
    shared = None if top5 is None else float(top5[images].mean())
    return OutputAgreement(float(values.mean()), interval, shared)


def with_range(report: ParityReport, largest: Mapping[str, float]) -> ParityReport:
    """Return the report with the check that fp16 holds the largest values of the tensors that are of it.

    `largest` has their names (`exporter.core.lower.largest_values`); none where no tensor is.
    """
    if not largest:
        return report
    name = max(largest, key=largest.__getitem__)
    check = _check(
        "fp16_range", largest[name], "<=", FP16_MOST, f"computed in fp32, {name}"
    )
    passed = report.passed and check.passed
    return replace(report, checks=(*report.checks, check), passed=passed)
