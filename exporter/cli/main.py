"""`star-export VERB`: run a verb and return its exit code.

0: done. 1: a check failed. 2: an error that the user can fix (one line, no traceback). 130: interrupted.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import NoReturn

import exporter
from exporter.cli import (
    bench,
    best,
    build,
    calibrate,
    check,
    compile,  # noqa: A004
    eval,  # noqa: A004
    export,
    inspect,
    models,
    plan,
    plugin,
    search,
    serve_config,
)
from exporter.errors import MissingDependencyError, UserError

__all__ = ["main"]

VERBS = (
    models,
    calibrate,
    plan,
    search,
    export,
    check,
    build,
    plugin,
    bench,
    eval,
    best,
    compile,
    serve_config,
    inspect,
)

# Libraries of the export machine that a deployment machine does not need.
EXPORT_LIBRARIES = (
    "torch",
    "timm",
    "onnx",
    "onnxscript",
    "onnx_graphsurgeon",
    "safetensors",
    "jinja2",
    "matplotlib",
    "tomli",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        level = logging.DEBUG if arguments.verbose else logging.WARNING
        logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s: %(message)s", force=True)
        return int(arguments.run(arguments))
    except UserError as error:
        return _refuse(error)
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        if library not in EXPORT_LIBRARIES:
            raise
        return _refuse(MissingDependencyError(library, "export"))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """Print a usage error in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} | see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="star-export", description=exporter.__doc__)
    parser.add_argument("--version", action="version", version=f"star-export {exporter.__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for module in VERBS:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        summary = (module.__doc__ or "").partition("\n")[0]
        verb = verbs.add_parser(name, help=summary, description=module.__doc__)
        verb.add_argument("--json", action="store_true", help="Print the result as JSON.")
        verb.add_argument("-v", "--verbose", action="store_true", help="Log every step to stderr.")
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser


def _refuse(error: UserError) -> int:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
