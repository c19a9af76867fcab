"""Write a Triton model repository from an export folder, and print the command that loads it."""

import argparse
import shlex

from exporter.cli.flags import add_folder, add_out
from exporter.cli.output import print_lines, show
from exporter.settings.flags import add_flags, from_flags
from exporter.workflows.folders.triton import ServeSettings, write_repository

EXAMPLES = ("star-export serve-config build/digits --out repository/",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_folder(parser)
    add_out(parser, "The model repository.", "DIR")
    add_flags(parser, ServeSettings)


def run(arguments: argparse.Namespace) -> int:
    """Write the repository; the exit code is 0."""
    repository = write_repository(
        arguments.folder, arguments.out, from_flags(ServeSettings, arguments)
    )
    command = shlex.join(repository.command)
    show(
        arguments,
        {"models": [str(place) for place in repository.models], "command": command},
        lambda: print_lines([*map(str, repository.models), command]),
    )
    return 0
