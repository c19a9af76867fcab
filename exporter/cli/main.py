"""`star-export VERB`: run a verb and return its exit code; the end of its help lists them."""

import argparse
import importlib
import io
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import exporter
from exporter.cli.parser import Parser, add_common
from exporter.core.base.errors import (
    ArtefactError,
    LaunchError,
    MissingDependencyError,
    RecipeError,
    UserError,
    reason_of,
)
from exporter.processes import processes

# The exit code of a command that lost its reader, as that of a process that SIGPIPE ends.
CLOSED = 141
# That of one that Ctrl-C ended.
INTERRUPTED = 130

# The flags that take the name of a model; others are completed by their words, or with files.
TAKES_MODEL = ("model.name", "why")

# In the order of a newcomer's need, see WHICH.
VERBS = (
    "compile",
    "tune",
    "check",
    "bench",
    "eval",
    "finetune",
    "models",
    "calibrate",
    "plan",
    "export",
    "depth",
    "build",
    "serve-config",
    "inspect",
)
WHICH = """
Start with `compile`: it makes a pruned and checked ONNX model of yours, from a folder of images. `tune` finds how
much to prune. `check`, `bench` and `eval` run the result on another machine. The others are more: training, and
single steps.
"""
START = "compile --model NAME --images DIR --mac-reduction 0.4 --out DIR"

EXAMPLES = (
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --out build/digits",
    "star-export models --why deit_small_patch16_224",
    "star-export check build/digits",
)
FAILS = "a check failed, or a search found nothing: see the help of the verb"

# Libraries of the export machine that a deployment machine does not need.
EXPORT_LIBRARIES = (
    "torch",
    "timm",
    "accelerate",
    "onnxscript",
    "onnx_graphsurgeon",
    "safetensors",
    "jinja2",
    "matplotlib",
    "tomli_w",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    try:
        with checked_streams():
            return _run(argv)
    except UserError as error:
        return _refuse(error)
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        if library not in EXPORT_LIBRARIES:
            raise
        return _refuse(MissingDependencyError(library, "export"))
    except PermissionError as error:
        if error.filename is None:
            raise
        # Python raises it even where a path is only looked at, below a folder that may not be entered.
        return _refuse(
            ArtefactError(
                os.fsdecode(error.filename),
                reason_of(error),
                "a place that you may use",
            )
        )
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if "_ARGCOMPLETE" in os.environ:
        complete(build_parser(_verb_of(os.environ.get("COMP_LINE", "").split()[1:])))
    if not words or (
        words[0].startswith("--") and words[0] not in ("--help", "--version")
    ):
        got = f"{words[0]} in place of a command" if words else "no command"
        raise UserError(
            "star-export", got, START, "star-export --help lists the others"
        )
    arguments, unknown = build_parser(_verb_of(words)).parse_known_args(words)
    if unknown:
        from exporter.cli.flags import recipe_key

        nearest = arguments.parser.nearest_flags(unknown[0])
        if key := recipe_key(unknown[0], arguments):
            raise RecipeError(unknown[0], "no flag of this verb", key, nearest)
        parts = (f"unrecognized arguments: {' '.join(unknown)}", nearest)
        arguments.parser.error(" | ".join(filter(None, parts)))
    _log(quiet=arguments.quiet, verbose=arguments.verbose)
    from exporter.cli.output import RichStages
    from exporter.core.base.machine import within_quota

    if threads := within_quota():
        # Read by PyTorch and NumPy when they are imported.
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    # Threads that spin while they wait for one another hold up whatever they wait for where CPUs are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    is_silent = arguments.quiet or getattr(arguments, "dry_run", False)
    arguments.stages = RichStages(quiet=is_silent)
    with _joined(arguments.verb, spread=arguments.spread):
        try:
            return int(arguments.run(arguments))
        except KeyboardInterrupt:
            if not arguments.resumes:
                raise
            text = "is not finished, and the same command goes on from what is done"
            print(f"interrupted: {arguments.out} {text}", file=sys.stderr)
            return INTERRUPTED


def _verb_of(words: Sequence[str]) -> str:
    """Return the verb of a command line; "" for none."""
    return next((word for word in words if not word.startswith("-")), "")


def _log(*, quiet: bool, verbose: bool) -> None:
    """Log to stderr, a line each: warnings, with `verbose` every step, with `quiet` errors alone."""
    level = logging.DEBUG if verbose else logging.WARNING
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_OneLine("%(levelname)s: %(message)s"))
    lines.addFilter(_Once())
    logging.basicConfig(
        handlers=[lines], level=logging.ERROR if quiet else level, force=True
    )


@contextmanager
def _joined(verb: str, *, spread: bool) -> Iterator[None]:
    """Join the processes of a launcher; all but the main one print nothing."""
    crew = processes()
    if crew.count > 1 and not spread:
        several = ", ".join(
            name for name in VERBS if hasattr(verb_module(name), "SPREAD")
        )
        raise LaunchError(
            verb, f"{crew.count} processes", "one", f"{several} take several"
        )
    if crew.main:
        yield
        return
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nothing,
        redirect_stdout(nothing),
    ):
        yield


class _OneLine(logging.Formatter):
    """A name with a line break in it cannot pass for a line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name is logging's)
        return super().formatMessage(record).replace("\n", "\\n")


class _Once(logging.Filter):
    """Lets a line through once: the same images are listed by several steps of a verb."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        is_new = line not in self._said
        self._said.add(line)
        return is_new


def build_parser(only: str | None = None) -> Parser:
    """Return the parser of all verbs; those but `only` without their flags, for which a verb is imported."""
    parser = Parser(prog="star-export", description=f"{exporter.__doc__}\n{WHICH}")
    parser.explain(EXAMPLES, FAILS)
    parser.add_argument(
        "--version", action="version", version=f"star-export {exporter.__version__}"
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name in VERBS:
        verb = verbs.add_parser(name, help=_summary(name))
        if only in (None, name):
            _declare(verb, name)
    return parser


def _summary(verb: str) -> str:
    """Return the first line of a verb's module, which is not imported for it."""
    module = Path(__file__).with_name(f"{verb.replace('-', '_')}.py")
    with module.open(encoding="utf-8") as source:
        return source.readline().strip().strip('"')


def _declare(verb: Parser, name: str) -> None:
    """Declare what a verb takes, and what runs it."""
    module = verb_module(name)
    verb.description = (module.__doc__ or "").strip()
    verb.explain(module.EXAMPLES, getattr(module, "FAILS", ""))
    add_common(verb)
    module.add_arguments(verb)
    verb.set_defaults(
        run=module.run,
        parser=verb,
        verb=name,
        spread=hasattr(module, "SPREAD"),
        resumes=hasattr(module, "RESUMES"),
    )


def verb_module(verb: str) -> Any:
    """Import the module of a verb."""
    return importlib.import_module(f"exporter.cli.{verb.replace('-', '_')}")


def _refuse(error: UserError) -> int:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions of the words typed so far, and exit.

    `eval "$(register-python-argcomplete star-export)"` switches it on in a shell, which then runs the command with
    `_ARGCOMPLETE` set each time that Tab is pressed.
    """
    try:
        import argcomplete
    except ImportError:
        raise MissingDependencyError("argcomplete", "completion") from None
    from exporter.models.listed import model_list

    files = argcomplete.FilesCompleter()

    def completer(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
        return model_list().accepted if action.dest in TAKES_MODEL else files(prefix)

    argcomplete.autocomplete(parser, default_completer=completer)


@contextmanager
def checked_streams() -> Iterator[None]:
    """Print characters that a stream cannot encode as escapes, and write all of stdout before the command ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError:
        _check_stdout()
        raise


def _check_stdout() -> None:
    """End the command if stdout takes no other line, and drop what it still holds."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as fault:
        # Python writes the rest once more as it ends, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(fault, BrokenPipeError):
            raise SystemExit(CLOSED) from None
        got = str(fault.strerror)
        raise ArtefactError("stdout", got, "a place to write the result") from None
