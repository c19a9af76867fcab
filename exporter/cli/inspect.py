"""Describe a file that star-export wrote: model, calibration, schedule, reference, engine, recipe or report."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.cli.output import print_json, print_lines
from exporter.cli.reports import print_reports
from exporter.core.base.canonical_json import load_json
from exporter.report.record import Report

EXAMPLES = (
    "star-export inspect build/digits",
    "star-export inspect calibration.safetensors",
)

# Values of a list that are shown.
MOST_VALUES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "artefact",
        type=Path,
        help="A file that star-export wrote, or an export folder.",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the description, of a folder what `compile` printed; the exit code is 0."""
    from exporter.jobs.inspect import REPORT_KIND, inspect_artefact

    described = inspect_artefact(arguments.artefact)
    if arguments.json:
        print_json(described)
    elif described["kind"] == REPORT_KIND:
        path = Path(described["path"])
        report = load_json(Report, path)
        print_reports({report.schedule.method: report}, path.parent)
    else:
        print_lines(_lines(described))
    return 0


def _lines(values: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield a line for each value, those of a table below its name."""
    for key, value in values.items():
        name = f"{indent}{key.replace('_', ' ')}:"
        if isinstance(value, Mapping) and value:
            yield name
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{name} {_text(value)}"


def _text(value: Any) -> str:
    if value in (None, "", [], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) or not isinstance(value, Sequence):
        return str(value)
    if isinstance(value[0], Mapping):
        return f"{len(value)} entries (--json)"
    texts = [_text(item) for item in value[:MOST_VALUES]]
    has_commas = any(", " in text for text in texts)
    shown = ("; " if has_commas else ", ").join(texts)
    return (
        shown
        if len(value) <= MOST_VALUES
        else f"{shown}, … ({len(value)}; --json has all)"
    )
