"""Print results as JSON or tables on stdout, and show the stages of a long job on stderr."""

import json
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from exporter.core.base.canonical_json import to_json
from exporter.core.base.intervals import Interval
from exporter.core.base.progress import Advance
from exporter.core.base.records import Schedule
from exporter.processes import processes

if TYPE_CHECKING:
    from rich.progress import Task


# A wider table is printed as labels and values: lines of a table that wrap cannot be read.
WIDEST = 80
# rich would cut cells to the width of a terminal.
UNCUT = 100_000
# Images that a line names.
NAMED = 5

# The time left is estimated from the last ten minutes: an image of a large model can take half a minute.
PACE_S = 600.0

# Seconds until the first line of progress of a stage, and between two, where stderr is no terminal.
FIRST_S, TOLD_S = 10.0, 30.0


def percent_interval(interval: Interval) -> str:
    """Return the limits of an interval of shares as percentages."""
    low, high = interval
    return f"{low:.2%} to {high:.2%}"


def rho_words(schedule: Schedule) -> str:
    """Return a schedule's rho, to be written behind something else; "" where it has none."""
    return "" if schedule.rho is None else f", rho {schedule.rho:.4g}"


def schedule_words(schedule: Schedule, saved: str = "") -> str:
    """Return how a schedule prunes, in short, and how much: what is saved, in words, else its rho."""
    amount = f", {saved}" if saved else rho_words(schedule)
    return f"{schedule.method}, {schedule.reduce}{amount}"


def print_json(record: object) -> None:
    """Print a record as indented JSON on stdout."""
    print(
        json.dumps(
            json.loads(to_json(record)), indent=2, sort_keys=True, ensure_ascii=False
        )
    )


def show(arguments: Namespace, record: object, printed: Callable[[], None]) -> None:
    """Print a record as JSON where the arguments ask for it, else as `printed` does for people."""
    if arguments.json:
        print_json(record)
    else:
        printed()


def print_lines(lines: Iterable[str]) -> None:
    """Print plain lines on stdout."""
    for line in lines:
        print(line)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Print a table on stdout, every column except the first right-aligned; a wide one as labels and values."""
    from rich.console import Console
    from rich.table import Table

    print(title)
    table = Table()
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    lines = list[str]()
    for row in rows:
        cells = [str(cell) for cell in row]
        table.add_row(*cells)
        lines += _labelled(columns, cells)
    console = Console(highlight=False, width=UNCUT)
    if console.measure(table).maximum > WIDEST:
        print_lines(lines)
    else:
        console.print(table)


def _labelled(columns: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    """Yield the first cell of a row, then the others with their columns' names, as many in a line as fit."""
    yield cells[0]
    line = ""
    for column, cell in zip(columns[1:], cells[1:], strict=True):
        part = f"{column} {cell}".strip()
        if line and len(line) + len(part) + 2 > WIDEST:
            yield line
            line = ""
        if cell:
            line = f"{line}; {part}" if line else f"  {part}"
    if line:
        yield line


def skipped_lines(roles: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield a line for each use of images of which some could not be read; `roles` has their names."""
    for role, skipped in roles.items():
        if skipped:
            yield f"{len(skipped)} {role} images skipped: {', '.join(list(skipped)[:NAMED])}"


class RichStages:
    """Show the stages of a long job on stderr.

    With `quiet`, nothing is shown.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        from rich.console import Console

        self._console = Console(
            stderr=True, highlight=False, quiet=quiet or not processes().main
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Show a stage until the body ends; call the value with (done, total) to move its progress bar."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        hidden = not self._console.is_terminal
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=hidden,
            speed_estimate_period=PACE_S,
        )
        start_s = time.perf_counter()

        def advance(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        def tell() -> None:
            elapsed_s = time.perf_counter() - start_s
            self.say(progress_line(progress.tasks[task], elapsed_s))

        with progress:
            task = progress.add_task(name, total=None)
            # A thread tells: a stage may spend minutes in one call that reports no progress.
            with repeated(tell, TOLD_S, first=FIRST_S) if hidden else nullcontext():
                yield advance
        self.say(f"✓ {name}, {time.perf_counter() - start_s:.1f} s")

    def say(self, line: str) -> None:
        """Print a line, whole, however narrow the terminal is."""
        self._console.print(line, soft_wrap=True, markup=False)


def progress_line(task: "Task", elapsed_s: float) -> str:
    """Return what a stage does, how far it is, and how long it has taken and may still take."""
    parts = [f"{timedelta(seconds=round(elapsed_s))} so far"]
    if task.total is not None:
        parts.insert(0, f"{task.completed:.0f} of {task.total:.0f}")
    elif task.completed:
        parts.insert(0, f"{task.completed:.0f} done")
    if task.time_remaining is not None:
        parts.append(f"about {timedelta(seconds=round(task.time_remaining))} left")
    return f"{task.description}: {', '.join(parts)}"


@contextmanager
def repeated(
    act: Callable[[], None], seconds: float, *, first: float
) -> Iterator[None]:
    """Call `act` after `first` seconds and then every so many in a thread while the body runs."""
    over = Event()

    def run() -> None:
        pause = first
        while not over.wait(pause):
            act()
            pause = seconds

    thread = Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
