"""Write what Triton or Hugging Face's loaders load, from an export folder."""

import argparse
import shlex

from exporter.cli.flags import add_folder, add_out
from exporter.cli.output import print_lines, show
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.serve.huggingface import write_huggingface
from exporter.serve.loaders import TRITON, ServeSettings
from exporter.serve.triton import write_repository

EXAMPLES = (
    "star-export serve-config build/digits --loader huggingface --out models/digits",
    "star-export serve-config build/digits --out repository/",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_folder(parser)
    add_out(parser, "The folder to write.", "DIR")
    add_flags(parser, ServeSettings)


def run(arguments: argparse.Namespace) -> int:
    """Write the models; the exit code is 0."""
    settings = from_flags(ServeSettings, arguments)
    if settings.loader == TRITON:
        served = write_repository(arguments.folder, arguments.out, settings)
    else:
        served = write_huggingface(arguments.folder, arguments.out)
    models = [str(place) for place in served.models]
    command = shlex.join(served.command)
    show(
        arguments,
        {"models": models, "command": command},
        lambda: print_lines([*models, *filter(None, [command])]),
    )
    return 0
