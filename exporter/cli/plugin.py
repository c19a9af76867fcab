"""Write the source of the CdfRetain plugin for a-STAR on TensorRT, and print the build command.

The source is part of the installed package: the GPU machine needs neither a clone of the repository nor rich.
"""

import argparse
from pathlib import Path

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("star-export plugin --out plugin/",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="Folder for the source.")


def run(arguments: argparse.Namespace) -> int:
    """Write the source and print the build command; the exit code is 0."""
    from exporter.formats.canonical_json import to_json
    from exporter.runtimes.tensorrt.plugin_library import build_command, write_source

    write_source(arguments.out)
    command = build_command(arguments.out)
    print(to_json({"source": str(arguments.out), "command": command}) if arguments.json else command)
    return 0
