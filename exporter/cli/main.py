"""`star-export VERB`: run a verb and return its exit code.

0: done. 1: a check failed. 2: an error that the user can fix (one line, no traceback). 130: interrupted.
"""

import argparse
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import exporter
from exporter.cli import (
    bench,
    best,
    build,
    calibrate,
    check,
    compile,  # noqa: A004
    depth,
    eval,  # noqa: A004
    export,
    finetune,
    inspect,
    models,
    plan,
    plugin,
    search,
    serve_config,
    tune,
)
from exporter.errors import LaunchError, MissingDependencyError, UserError
from exporter.processes import processes

__all__ = ["main", "make_parser"]

VERBS = (
    models,
    depth,
    calibrate,
    plan,
    search,
    finetune,
    export,
    check,
    build,
    plugin,
    bench,
    eval,
    best,
    tune,
    compile,
    serve_config,
    inspect,
)

# Libraries of the export machine that a deployment machine does not need.
EXPORT_LIBRARIES = (
    "torch",
    "timm",
    "accelerate",
    "onnx",
    "onnxscript",
    "onnx_graphsurgeon",
    "safetensors",
    "jinja2",
    "matplotlib",
    "tomli_w",
    "tomli",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    try:
        arguments = make_parser().parse_args(argv)
        level = logging.DEBUG if arguments.verbose else logging.WARNING
        lines = logging.StreamHandler(sys.stderr)
        lines.setFormatter(_OneLine("%(levelname)s: %(message)s"))
        logging.basicConfig(handlers=[lines], level=level, force=True)
        with _joined(arguments.verb, spread=arguments.spread):
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


@contextmanager
def _joined(verb: str, *, spread: bool) -> Iterator[None]:
    """Join the processes of a launcher; all but the main one print nothing."""
    crew = processes()
    if crew.count > 1 and not spread:
        several = ", ".join(name for name, module in _named(VERBS) if hasattr(module, "SPREAD"))
        raise LaunchError(verb, f"{crew.count} processes", "one", f"{several} take several")
    if crew.main:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nothing, redirect_stdout(nothing):
        yield


class _OneLine(logging.Formatter):
    """A name with a line break in it cannot pass for a line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name is logging's)
        return super().formatMessage(record).replace("\n", "\\n")


class _Parser(argparse.ArgumentParser):
    """Print a usage error in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} | see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs; it needs no library of the export machine."""
    parser = _Parser(prog="star-export", description=exporter.__doc__)
    parser.add_argument("--version", action="version", version=f"star-export {exporter.__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name, module in _named(VERBS):
        summary = (module.__doc__ or "").partition("\n")[0]
        verb = verbs.add_parser(name, help=summary, description=module.__doc__)
        verb.add_argument("--json", action="store_true", help="Print the result as JSON.")
        verb.add_argument("-v", "--verbose", action="store_true", help="Log every step to stderr.")
        module.add_arguments(verb)
        verb.set_defaults(run=module.run, verb=name, spread=hasattr(module, "SPREAD"))
    return parser


def _named(verbs: Iterable[ModuleType]) -> Iterator[tuple[str, Any]]:
    for module in verbs:
        yield module.__name__.rpartition(".")[2].replace("_", "-"), module


def _refuse(error: UserError) -> int:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
