"""What verbs print: JSON for machines, a table for people, progress on stderr."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from exporter.records import to_json
from exporter.workflows.progress import Advance

__all__ = ["RichStages", "print_json", "print_lines", "print_table"]


class RichStages:
    """Stages of a long job, shown on stderr as they run."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Show a stage until the body ends; the value moves its bar, where the length is known."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not self._console.is_terminal
        with Progress(*columns, console=self._console, transient=True, disable=hidden) as progress:
            task = progress.add_task(name, total=None)
            start_s = time.perf_counter()
            yield lambda done, total: progress.update(task, completed=done, total=total)
        self._console.print(f"✓ {name}, {time.perf_counter() - start_s:.1f} s")


def print_json(record: object) -> None:
    """A record on stdout, indented."""
    print(json.dumps(json.loads(to_json(record)), indent=2, sort_keys=True, ensure_ascii=False))


def print_lines(lines: Iterable[str]) -> None:
    """Plain lines on stdout."""
    for line in lines:
        print(line)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table on stdout; every column but the first is aligned right."""
    print(title)
    table = Table()
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*map(str, row))
    Console(highlight=False).print(table)
