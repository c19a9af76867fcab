"""`--dry-run` of the verbs that run long, and what it prints."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.workflows.dry_run import DryRun

__all__ = ["add_dry_run", "print_dry_run"]


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Declare the flag."""
    parser.add_argument(
        "--dry-run", action="store_true",
        help="Only check the settings and the weights; print the settings, the schedule and its multiply-adds.",
    )  # fmt: skip


def print_dry_run(found: "DryRun", *, as_json: bool) -> int:
    """Print the settings, the multiply-adds and the schedule; the exit code is 0."""
    from exporter.cli.output import print_json, print_lines, print_table

    if as_json:
        print_json(found)
        return 0
    print_lines(_lines(found))
    schedule = found.schedule
    if schedule is not None:
        rho = "" if schedule.rho is None else f", rho {schedule.rho:.4g}"
        layers = zip(schedule.rates, schedule.keep, strict=True)
        rows = [(layer, f"{rate:.4f}", keep) for layer, (rate, keep) in enumerate(layers, start=1)]
        title = f"schedule: {schedule.method}, {schedule.reduce}{rho}"
        print_table(title, ("layer", "rate", "patches kept"), rows)
    return 0


def _lines(found: "DryRun") -> Iterator[str]:
    yield f"{found.model}: checked, nothing is run"
    for name, value in found.settings.items():
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        yield f"{name} = {shown}"
    pruned = "unknown" if found.gmacs_pruned is None else f"{found.gmacs_pruned:.3f}"
    why = f" (the schedule follows from {found.unknown})" if found.unknown else ""
    yield f"GMACs per image: {found.gmacs_dense:.3f} dense, {pruned} pruned{why}"
