"""Build the TensorRT engines of an export folder for this GPU and this version of TensorRT.

Writes a manifest beside each engine and audits it: the data types of its layers, and the attention of every block.
"""

import argparse
import shlex
from pathlib import Path

from exporter.settings import add_flags, from_flags

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = (
    "star-export build build/digits",
    "star-export build build/digits --batches 1,8",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from exporter.runtimes.tensorrt.settings import BuildSettings

    parser.add_argument("folder", type=Path, help="The export folder that `compile` wrote.")
    add_flags(parser, BuildSettings)


def run(arguments: argparse.Namespace) -> int:
    """Build the engines and print their audits; the exit code is 0."""
    from exporter.cli.output import print_json, print_lines
    from exporter.cli.stages import RichStages
    from exporter.runtimes.tensorrt.layer_info import explain_audit
    from exporter.runtimes.tensorrt.settings import BuildSettings
    from exporter.workflows.folders.build import build_folder

    built = build_folder(
        arguments.folder, from_flags(BuildSettings, arguments), RichStages(quiet=arguments.quiet)
    )
    if arguments.json:
        print_json(built)
        return 0
    for each in built:
        where = each.manifest.built
        print_lines(
            [f"{each.file}: TensorRT {where.tensorrt}, {where.gpu} (SM {where.sm}), driver {where.driver}"]
        )
        for batch, audit in zip(each.manifest.batches, each.audits, strict=True):
            print_lines(f"  batch {batch}: {line}" for line in explain_audit(audit))
        print_lines(f"  {shlex.join(words)}" for words in each.trtexec)
    return 0
