"""What is said of a comparison with PyTorch: the lines of `check`, and each check in words."""

from exporter.core.base.vocabulary import OutputKind
from exporter.core.verify.record import Check, OutputParity, ParityReport

# By the name of a check; {output} is the output that the name ends or begins with.
CHECKS = {
    "interface": "Inputs and outputs have the same names, shapes and types",
    "tracing_is_shipped": "The variant that reports its decisions gives the same numbers as the shipped model",
    "fp16_range": "fp16 holds the largest values, as computed in fp32",
    "kept_indices": "Every list of kept patches is in order and complete",
    "kept_sets": "Each layer keeps the same patches, except where scores nearly tie",
    "merge_indices": "Every merge names a patch that is there",
    "merges": "Each patch merges into the same one, except where similarities nearly tie",
    "top1": "Both predict the same class (upper limit of the 95 % interval)",
    "same_labels": "Both give the same labels (upper limit of the 95 % interval)",
    "same_labels_all": "Over all images, both give the same labels (upper limit of the 95 % interval)",
    "top1_all": "Over all images, both predict the same class (upper limit of the 95 % interval)",
}
FINITE = "All values of {output} are finite"
FORCED = "With PyTorch's decisions, {output} differ by rounding alone"
PLAIN = "With the model's own decisions, {output} differ by rounding alone"
SIGNS = {"<=": "≤", "<": "<", ">=": "≥"}
COSINE = "{output} points the same way (lowest cosine)"


def check_words(check: Check, *, prunes: bool) -> str:
    """Say what a check compares; `prunes`: the model decides, so that its outputs are compared twice."""
    name = check.name
    if name in CHECKS:
        return CHECKS[name]
    kind, _, output = name.partition("_")
    if kind == "finite":
        return FINITE.format(output=output)
    if kind == "forced":
        return FORCED.format(output=output)
    if name.endswith("_cosine"):
        return COSINE.format(output=name.removesuffix("_cosine"))
    if prunes:
        return PLAIN.format(output=name)
    return f"{name.capitalize()} differ by rounding alone"


def explain(report: ParityReport) -> list[str]:
    """Return the report as lines of text: the result, arithmetic and decision errors, then every check."""
    result = "PASSED" if report.passed else "FAILED"
    lines = [
        f"{result}: {report.shipped} against {report.reference}, {report.images} images",
        *(_arithmetic(output) for output in report.outputs),
    ]
    if report.layers:
        lines.append(f"decisions: {_decisions(report)}")
    lines += [_line(check) for check in report.checks]
    return lines


def _arithmetic(output: OutputParity) -> str:
    word = output.worst or output.name
    word = "logit" if output.kind == OutputKind.LOGITS else word
    forced = output.max_abs_diff_forced
    return (
        f"arithmetic: max |Δ{word}| {_number(output.max_abs_diff)} without a flip"
        f"{'' if forced is None else f', {_number(forced)} with forced indices'}, {word} std {output.std:.3g}, "
        f"smallest passing tolerance: {_number(output.diff_needed_per_std)} std"
    )


def _decisions(report: ParityReport) -> str:
    overlap = f"kept-set overlap {report.kept_set_overlap:.6f}"
    agreements = [
        layer.merge_agreement
        for layer in report.layers
        if layer.merge_agreement is not None
    ]
    if agreements:
        overlap += f", {min(agreements):.6f} of the patches join the same survivor"
    if report.first_differing_layer is None:
        return f"{overlap}, every image keeps the same patches in every layer"
    gaps = [
        layer.largest_merge_gap
        for layer in report.layers
        if layer.largest_merge_gap is not None
    ]
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
