"""The lines of `compile --dry-run`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.workflows.compiling.preview import Preview

__all__ = ["print_preview"]


def print_preview(found: "Preview") -> None:
    """Print the steps as a table, then multiply-adds, files and the guess of the time."""
    from exporter.cli.output import print_lines, print_table

    rows = [
        (each.step, each.images or "", f"{each.macs / 1e12:.3f}" if each.macs else "", each.lowered or "")
        for each in found.steps
    ]
    columns = ("step", "image runs", "10¹² MACs", "models lowered")
    print_table(f"{found.model}, {found.method}, {found.target}: nothing is run", columns, rows)
    print_lines(_lines(found))


def _lines(found: "Preview") -> Iterator[str]:
    pruned = "unknown" if found.gmacs_pruned is None else f"{found.gmacs_pruned:.3f}"
    open_ = f" (the schedule follows from {found.unknown})" if found.unknown else ""
    yield f"GMACs per image: {found.gmacs_dense:.3f} dense, {pruned} pruned{open_}"
    yield f"files: {', '.join(found.files)}"
    if found.replaced:
        yield f"of these, {len(found.replaced)} exist and would be replaced"
    low, high = found.minutes
    yield (
        f"time: perhaps {_minutes(low)} to {_minutes(high)}. A guess from multiply-adds and the speed of a matrix "
        "product on this CPU, not a measurement"
    )


def _minutes(minutes: float) -> str:
    return (
        f"{60 * minutes:.0f} s"
        if minutes < 2
        else f"{minutes:.0f} min"
        if minutes < 120
        else f"{minutes / 60:.1f} h"
    )
