"""Build the library of ONNX Runtime operators that choose a layer's patches in one node.

Files of the target onnxruntime-ops-fp32 need it. The compiler is CXX or the first one found, and
ONNXRUNTIME_INCLUDE_DIR is the folder of ONNX Runtime's headers; the source is part of the installed package.
"""

import argparse
from pathlib import Path

from exporter.cli.flags import add_action, add_common

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = (
    "star-export ops build",
    "star-export ops build --out build/ops",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action and its flag."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    build = add_action(actions, "build", "Compile the library.", EXAMPLES[1])
    build.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="Folder for the library; by default where runners look for it.",
    )
    add_common(build, default=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Compile, and print the path of the library; the exit code is 0."""
    from exporter.formats.canonical_json import to_json
    from exporter.runtimes.onnxruntime.operator_library import LIBRARY, build_library, library_place

    place = library_place() if arguments.out is None else arguments.out / LIBRARY
    build_library(place)
    print(to_json({"library": str(place)}) if arguments.json else place)
    return 0
