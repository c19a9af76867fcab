"""The report of a comparison: every measured number, every check, and whether it passed."""

from dataclasses import dataclass

from exporter.evaluation.intervals import Interval
from exporter.evaluation.parity.tolerance import Tolerance
from exporter.vocabulary import OutputKind

__all__ = ["Check", "LayerParity", "OutputParity", "ParityReport", "explain"]


@dataclass(frozen=True)
class Check:
    """A named check: passes if `measured` `relation` `allowed` holds, fails if nothing was measured."""

    name: str
    measured: float | None
    relation: str
    allowed: float
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class LayerParity:
    """One pruning layer, 1-based: which of its input patches each side kept.

    `patches` and `kept` are means over images, for the reference.
    `kept_set_overlap` is the mean over all images of |A∩B|/|A∪B|, on positions in the image. `differing_images`
    kept another set in this layer; `flipped_images` did so here first, with the largest margin given.
    If tokens merge, `merge_agreement` is the mean share of patches that join the same survivor;
    `merge_flipped_images` keep the same sets but first differ here in a merge, with the largest gap given.
    """

    layer: int
    patches: float
    kept: float
    kept_set_overlap: float
    differing_images: int
    flipped_images: int
    largest_flip_margin: float | None
    merge_agreement: float | None = None
    merge_flipped_images: int = 0
    largest_merge_gap: float | None = None

    @property
    def differs(self) -> bool:
        """Whether the decisions of any image differ in this layer."""
        return bool(self.differing_images or self.merge_flipped_images)


@dataclass(frozen=True)
class OutputParity:
    """One output of a model; differences as in `ParityReport`.

    `measure` is "top1", the share of images of equal class, or "cosine", the lowest of any image, for tokens of
    any position that both sides keep. `agreement` is over images that keep the same patches on both sides,
    `agreement_all` over all images, `agreement_forced` over all images with forced decisions. Each has the 95 %
    interval (Wilson) of its share beside it, None for a cosine.
    """

    name: str
    kind: OutputKind
    std: float
    max_abs_diff_allowed: float
    max_abs_diff: float | None
    max_abs_diff_forced: float | None
    max_abs_diff_tracing: float | None
    diff_needed_per_std: float | None
    measure: str
    agreement: float | None
    interval: Interval | None
    agreement_all: float | None
    interval_all: Interval | None
    agreement_forced: float | None
    interval_forced: Interval | None


@dataclass(frozen=True)
class ParityReport:
    """The comparison of a shipped model with its reference; true if every check passed.

    Fields about logits and classes are None for a model without logits; `outputs` has the same for every output.

    Arithmetic error: `max_abs_logit_diff` is over the images that keep the same patches on both sides,
    `max_abs_logit_diff_forced` over all images with the reference's patches forced on the shipped model.
    Decision error: the kept sets, and the distance to the cut (`margin`, in log fused score; under a-STAR a share
    of the mass) of the first different patches. `logit_diff_needed_per_std` is the smallest passing tolerance.
    None means that there was nothing to measure: no pruning, no flip, or no image without a flip.
    `cause` says why it failed, where that is known.
    """

    reference: str
    shipped: str
    images: int
    finite_images: int
    tolerance: Tolerance
    logit_std: float | None
    max_abs_logit_diff_allowed: float | None
    max_abs_logit_diff: float | None
    max_abs_logit_diff_forced: float | None
    max_abs_logit_diff_tracing: float | None
    logit_diff_needed_per_std: float | None
    kept_set_overlap: float | None
    flipped_images: int
    largest_flip_margin: float | None
    first_differing_layer: int | None
    layers: tuple[LayerParity, ...]
    outputs: tuple[OutputParity, ...]
    top1_agreement: float | None
    top5_agreement: float | None
    top1_agreement_all: float | None
    top1_interval_all: Interval | None
    top5_agreement_all: float | None
    checks: tuple[Check, ...]
    passed: bool
    cause: str = ""

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        failed = ", ".join(each.name for each in self.checks if not each.passed)
        result = "passed" if self.passed else f"FAILED ({failed})"
        return f"<ParityReport {self.shipped}, {self.images} images: {result}>"


def explain(report: ParityReport) -> list[str]:
    """Return the report as lines of text: the result, arithmetic and decision errors, then every check."""
    result = "PASSED" if report.passed else "FAILED"
    lines = [
        f"{result}: {report.shipped} against {report.reference}, {report.images} images"
        f"{report.cause and f': {report.cause}'}",
        *(_arithmetic(output) for output in report.outputs),
    ]
    if report.layers:
        lines.append(f"decisions: {_decisions(report)}")
    lines += [_line(check) for check in report.checks]
    return lines


def _arithmetic(output: OutputParity) -> str:
    word = "logit" if output.kind == OutputKind.LOGITS else output.name
    forced = output.max_abs_diff_forced
    return (
        f"arithmetic: max |Δ{word}| {_number(output.max_abs_diff)} without a flip"
        f"{'' if forced is None else f', {_number(forced)} with forced indices'}, {word} std {output.std:.3g}, "
        f"smallest passing tolerance: {_number(output.diff_needed_per_std)} std"
    )


def _decisions(report: ParityReport) -> str:
    overlap = f"kept-set overlap {report.kept_set_overlap:.6f}"
    agreements = [layer.merge_agreement for layer in report.layers if layer.merge_agreement is not None]
    if agreements:
        overlap += f", {min(agreements):.6f} of the patches join the same survivor"
    if report.first_differing_layer is None:
        return f"{overlap}, every image keeps the same patches in every layer"
    gaps = [layer.largest_merge_gap for layer in report.layers if layer.largest_merge_gap is not None]
    gap = f", largest gap {_number(max(gaps))}" if gaps else ""
    return (
        f"{overlap}, {report.flipped_images} of {report.images} images flip, the first at layer "
        f"{report.first_differing_layer}, largest margin {_number(report.largest_flip_margin)}{gap}"
    )


def _line(check: Check) -> str:
    mark = "pass" if check.passed else "FAIL"
    detail = f" ({check.detail})" if check.detail else ""
    return f"{mark} {check.name}: {_number(check.measured)} {check.relation} {check.allowed:.3g}{detail}"


def _number(value: float | None) -> str:
    return "nothing measured" if value is None else f"{value:.3g}"
