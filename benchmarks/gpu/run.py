"""The verbs that a script needs, one after the other, on a machine with a GPU."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from exporter.cli.main import main
from exporter.engines.machine import this_machine
from exporter.errors import UserError

__all__ = ["folder_argument", "run_verbs"]


def folder_argument(description: str | None) -> Path:
    """The export folder that the command line names."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="What `star-export compile --out` left.")
    path: Path = parser.parse_args().folder
    return path


def run_verbs(verbs: Sequence[Sequence[str]]) -> int:
    """Run the verbs until one fails; its exit code, or 2 without a GPU."""
    try:
        machine = this_machine("")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{machine.gpu}, SM {machine.sm}, driver {machine.driver}, CUDA {machine.cuda}")
    for verb in verbs:
        print(f"$ star-export {' '.join(verb)}", flush=True)
        code = main(verb)
        if code:
            return code
    return 0
