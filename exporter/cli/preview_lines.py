"""`--dry-run` of the verbs that run long, and what it prints."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.workflows.previewing.record import Preview

__all__ = ["add_dry_run", "print_preview"]


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Declare the flag."""
    parser.add_argument(
        "--dry-run", action="store_true",
        help="Only check the settings; print the steps, multiply-adds, files and an estimate of the time.",
    )  # fmt: skip


def print_preview(found: "Preview", *, as_json: bool) -> int:
    """Print the steps as a table, then multiply-adds, files and the guess of the time; the exit code is 0."""
    from exporter.cli.output import print_json, print_lines, print_table

    if as_json:
        print_json(found)
        return 0
    rows = [
        (each.step, each.images or "", f"{each.macs / 1e12:.3f}" if each.macs else "", each.lowered or "")
        for each in found.steps
    ]
    columns = ("step", "image runs", "10¹² MACs", "models lowered")
    title = ", ".join(filter(None, (found.model, found.method, found.target)))
    print_table(f"{title}: nothing is run", columns, rows)
    print_lines(_lines(found))
    return 0


def _lines(found: "Preview") -> Iterator[str]:
    yield f"GMACs per image: {', '.join(_gmacs(found))}"
    yield f"files: {', '.join(found.files)}"
    if found.replaced:
        yield f"of these, {len(found.replaced)} exist and would be replaced"
    low, high = found.minutes
    yield (
        f"time: perhaps {_minutes(low)} to {_minutes(high)}. A guess from multiply-adds and the speed of a matrix "
        "product on this CPU, not a measurement"
    )


def _gmacs(found: "Preview") -> Iterator[str]:
    yield f"{found.gmacs_dense:.3f} dense"
    if found.gmacs_pruned is not None or found.unknown:
        pruned = "unknown" if found.gmacs_pruned is None else f"{found.gmacs_pruned:.3f}"
        yield f"{pruned} pruned" + (f" (the schedule follows from {found.unknown})" if found.unknown else "")


def _minutes(minutes: float) -> str:
    return (
        f"{60 * minutes:.0f} s"
        if minutes < 2
        else f"{minutes:.0f} min"
        if minutes < 120
        else f"{minutes / 60:.1f} h"
    )
