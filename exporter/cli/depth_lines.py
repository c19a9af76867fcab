"""What the actions of `depth` print."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.depth.plan import DepthPlan
    from exporter.workflows.depth.result import Chosen, Collected
    from exporter.workflows.depth.steps import Applied, Fitted, Found

__all__ = ["applied_lines", "chosen_lines", "collected_lines", "fitted_lines", "found_line", "layers"]

# The powers of a and t in the predictor, in the order of its coefficients.
TERMS = tuple((total - power, power) for total in range(5) for power in range(total + 1))


def applied_lines(done: "Applied") -> list[str]:
    """Return what was removed, and what that saves."""
    plan, form = done.depth.plan, "merged" if done.depth.merged else "unmerged"
    return [
        f"{done.file}: without attention {list(plan.attention)}, activation {list(plan.activation)}, {form}",
        f"GMACs {done.gmacs_before:.3f} → {done.gmacs_after:.3f}, "
        f"parameters {done.parameters_before:,} → {done.parameters_after:,}",
    ]


def chosen_lines(done: "Chosen") -> Iterator[str]:
    """Return the chosen units, the scores of all, and what was skipped."""
    from exporter.cli.output import skipped_lines

    for unit, scores in vars(done.importance).items():
        told = ", ".join(f"{layer}: {score:.2e}" for layer, score in enumerate(scores, start=1))
        yield f"importance of {unit} by layer: {told}"
    yield from applied_lines(done.applied)
    yield from skipped_lines({"training": done.training_skipped})


def collected_lines(found: "Collected") -> Iterator[str]:
    """Return what was skipped."""
    from exporter.cli.output import skipped_lines

    skipped = {
        "training": found.training_skipped,
        "evaluation": found.skipped,
    }
    return skipped_lines(skipped)


def layers(plan: "DepthPlan") -> tuple[str, str]:
    """Return the layers without attention and those without activation, for a table."""
    attention, activation = (" ".join(map(str, each)) or "-" for each in (plan.attention, plan.activation))
    return attention, activation


def fitted_lines(found: "Fitted") -> Iterator[str]:
    """Return the polynomial, term by term."""
    yield f"degree {found.predictor.degree}; a and t are the shares of attention layers and activations that stay"
    for (a, t), coefficient in zip(TERMS, found.predictor.coefficients, strict=False):
        yield f"{coefficient:+12.4f} · a^{a} · t^{t}"


def found_line(found: "Found") -> str:
    """Return the best split."""
    best, degree = found.best, found.predictor.degree
    return (
        f"best: {best.attention} attention layers and {best.activation} activations, "
        f"{best.accuracy:.2f} % predicted (degree {degree}, error {found.rmse[degree]:.2f} points)"
    )
