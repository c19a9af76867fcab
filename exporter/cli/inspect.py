"""Describe a file that star-export wrote: model, calibration, schedule, reference, engine, recipe or report."""

import argparse
import json
from pathlib import Path

from exporter.cli.output import print_json

EXAMPLES = (
    "star-export inspect build/digits",
    "star-export inspect calibration.safetensors",
)

# Characters of a value that are shown: a report's are pages long.
LONGEST = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "artefact", type=Path, help="A file that star-export wrote, or an export folder."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the description; the exit code is 0."""
    from exporter.workflows.inspect import inspect_artefact

    described = inspect_artefact(arguments.artefact)
    if arguments.json:
        print_json(described)
        return 0
    for key, value in described.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        rest = " … (--json: all)" if len(text) > LONGEST else ""
        print(f"{key}: {text[:LONGEST]}{rest}")
    return 0
