"""Print results as JSON or tables on stdout."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from exporter.evaluation.intervals import Interval
from exporter.formats.canonical_json import to_json

__all__ = ["percent_interval", "print_json", "print_lines", "print_table", "skipped_lines"]


# Tables are printed whole: rich would cut cells to the width of a terminal, and to 80 columns in a pipe.
WIDEST = 100_000
# Images that a line names.
NAMED = 5


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
    Console(highlight=False, width=WIDEST).print(table)


def skipped_lines(roles: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield a line for each use of images of which some could not be read; `roles` has their names."""
    for role, skipped in roles.items():
        if skipped:
            yield f"{len(skipped)} {role} images skipped: {', '.join(list(skipped)[:NAMED])}"
