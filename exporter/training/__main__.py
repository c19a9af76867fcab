"""Train an image classifier on a folder of images, with one subfolder per class."""

import argparse
import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

from exporter.errors import UserError
from exporter.settings import add_flags, from_flags
from exporter.training.settings import TrainSettings

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m exporter.training", description=__doc__)
    parser.add_argument("--images", type=Path, required=True, help="Training images, one folder per class.")
    parser.add_argument(
        "--held-out", type=Path, required=True, help="Images of the same classes, for accuracy."
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="File for the weights, ending in .safetensors."
    )
    add_flags(parser, TrainSettings)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    plain = RichHandler(console=console, show_time=False, show_level=False, show_path=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[plain])
    try:
        given = parser.parse_args(arguments)
        settings = from_flags(TrainSettings, given)
        # This import takes seconds; `--help` and wrong flags need not wait for it.
        from exporter.training.train_folder import train_folder  # noqa: PLC0415

        command = f"{parser.prog} {shlex.join(arguments)}"
        record = train_folder(given.images, given.held_out, given.out, settings, console, command=command)
    except UserError as error:
        console.print(f"error: {error}", markup=False)
        return 2
    console.print(
        f"{given.out}: top-1 {record.top1_held_out:.2%} held out, {record.top1_train:.2%} in training"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
