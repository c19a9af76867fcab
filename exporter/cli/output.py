"""Print results as JSON or tables on stdout, and progress on stderr."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from exporter.evaluation.proportions import Interval
from exporter.formats.canonical_json import to_json
from exporter.processes import processes
from exporter.workflows.progress import Advance

__all__ = ["RichStages", "percent_interval", "print_json", "print_lines", "print_table"]


# The time left is estimated from the last ten minutes: an image of a large model can take half a minute.
PACE_S = 600.0

# Seconds between two lines of progress where stderr is no terminal.
TOLD_S = 60.0


class RichStages:
    """Show the stages of a long job on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=not processes().main)

    @contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Show a stage until the body ends; call the value with (done, total) to move its progress bar."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not self._console.is_terminal
        progress = Progress(
            *columns, console=self._console, transient=True, disable=hidden, speed_estimate_period=PACE_S
        )
        start_s = told_s = time.perf_counter()

        def advance(done: int, total: int | None) -> None:
            nonlocal told_s
            progress.update(task, completed=done, total=total)
            left = progress.tasks[task].time_remaining
            if hidden and left is not None and time.perf_counter() - told_s >= TOLD_S:
                told_s = time.perf_counter()
                self._console.print(f"{name}: {done} of {total}, {timedelta(seconds=round(left))} left")

        with progress:
            task = progress.add_task(name, total=None)
            yield advance
        self._console.print(f"✓ {name}, {time.perf_counter() - start_s:.1f} s")


def percent_interval(interval: Interval) -> str:
    """Return the limits of an interval of shares as percentages."""
    low, high = interval
    return f"{low:.2%} to {high:.2%}"


def print_json(record: object) -> None:
    """Print a record as indented JSON on stdout."""
    print(json.dumps(json.loads(to_json(record)), indent=2, sort_keys=True, ensure_ascii=False))


def print_lines(lines: Iterable[str]) -> None:
    """Print plain lines on stdout."""
    for line in lines:
        print(line)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table on stdout; every column except the first is right-aligned."""
    print(title)
    table = Table()
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*map(str, row))
    Console(highlight=False).print(table)
