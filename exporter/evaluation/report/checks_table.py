"""Say in plain words what each check of a parity result compares."""

from dataclasses import dataclass

from exporter.evaluation.parity import ParityReport

__all__ = ["CheckRow", "checks_table"]

# By the name of a check; {output} is the output that the name ends or begins with.
WORDS = {
    "interface": "Inputs and outputs have the same names, shapes and types",
    "tracing_is_shipped": "The variant that reports its decisions gives the same numbers as the shipped model",
    "kept_indices": "Every list of kept patches is in order and complete",
    "kept_sets": "Each layer keeps the same patches, except where scores nearly tie",
    "merge_indices": "Every merge names a patch that is there",
    "merges": "Each patch merges into the same one, except where similarities nearly tie",
    "top1": "Both predict the same class (upper limit of the 95 % interval)",
    "top1_all": "Over all images, both predict the same class (upper limit of the 95 % interval)",
}
FINITE = "All values of {output} are finite"
FORCED = "With PyTorch's decisions, {output} differ by rounding alone"
PLAIN = "With the model's own decisions, {output} differ by rounding alone"
SIGNS = {"<=": "≤", "<": "<", ">=": "≥"}
COSINE = "{output} points the same way (lowest cosine)"


@dataclass(frozen=True)
class CheckRow:
    """One check: what it compares, what was measured, and the limit."""

    passed: bool
    words: str
    measured: str
    limit: str
    detail: str


def checks_table(report: ParityReport) -> list[CheckRow]:
    """Return a row for each check of a parity result, in its order."""
    prunes = bool(report.layers)
    return [
        CheckRow(
            check.passed,
            _words(check.name, prunes),
            "nothing measured" if check.measured is None else f"{check.measured:.3g}",
            f"{SIGNS[check.relation]} {check.allowed:.3g}",
            check.detail,
        )
        for check in report.checks
    ]


def _words(name: str, prunes: bool) -> str:
    if name in WORDS:
        return WORDS[name]
    kind, _, output = name.partition("_")
    if kind == "finite":
        return FINITE.format(output=output)
    if kind == "forced":
        return FORCED.format(output=output)
    if name.endswith("_cosine"):
        return COSINE.format(output=name.removesuffix("_cosine"))
    return PLAIN.format(output=name) if prunes else f"{name.capitalize()} differ by rounding alone"
