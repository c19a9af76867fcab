"""The parser of the command line: a usage error is one line, a help leads from what is needed to what is rare."""

import argparse
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, NoReturn

from exporter.core.base.errors import SHORT
from exporter.core.base.files import path_of

INDENT = "  "

# The groups of flags in a verb's help, in this order.
GROUPS = (
    "model",
    "images",
    "how much to prune",
    "how to prune",
    "target",
    "measurement",
    "training",
    "advanced",
)

EXIT_CODES = {
    0: "done",
    2: "an error that you can fix: one line names the setting or file, what was given, and what is needed",
    130: "interrupted",
    141: "the program that reads stdout ended first",
}


class Parser(argparse.ArgumentParser):
    """Parse the flags of a command or a verb; a usage error is one line, like every other error."""

    def __init__(self, **options: Any) -> None:
        # What is short for a flag of one verb is another flag, or none, of the next.
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )
        self.register("type", Path, _path)
        # Made in their order; the help leaves out those without flags, and shows the last one last.
        self._by_title = {title: self.add_argument_group(title) for title in GROUPS}

    def group(self, title: str) -> Any:
        """Return where the flags of a group are declared; of "", the parser itself."""
        return self._by_title[title] if title else self

    def explain(self, examples: Sequence[str], fails: str = "") -> None:
        """Show commands as examples below the description, and below the flags what each exit code means.

        `fails` says what exit code 1 means; "" if the command never exits with it.
        """
        commands = "\n".join(INDENT + example for example in examples)
        paragraphs = [*map(_wrapped, (self.description or "").split("\n\n"))]
        self.description = "\n\n".join([*paragraphs, "Examples:", commands])
        codes = {**EXIT_CODES, 1: fails}
        lines = (
            f"{INDENT}{code:<5}{codes[code]}" for code in sorted(codes) if codes[code]
        )
        self.epilog = "exit codes:\n\n" + "\n".join(lines)

    def format_help(self) -> str:
        """Return the help: what is needed, then the groups, the advanced flags last."""
        # argparse would list all flags here: two screens of them.
        line = " ".join((self.prog, *self._needed(), "[options]"))
        self.usage = self.usage or line.replace("%", "%%")
        # Groups of a verb's own were made later.
        self._action_groups.sort(key=lambda group: group.title == GROUPS[-1])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print a usage error as one line, and exit with 2."""
        self.exit(2, f"error: {message} | see {self.prog} --help\n")

    def nearest_flags(self, word: str) -> str:
        """Return which flags a word may have meant, in words; "" for none."""
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        names = [flag.removeprefix("--") for flag in flags]
        name = word.partition("=")[0].removeprefix("--")
        longer = [known for known in names if name and known.startswith(name)]
        nearest = [f"--{known}" for known in longer or get_close_matches(name, names)]
        return f"nearest: {', '.join(nearest)}" if nearest else ""

    def _needed(self) -> Iterator[str]:
        """Yield the positional arguments and the flags without which the command is refused."""
        for action in self._actions:
            name = str(action.metavar or action.dest)
            if not action.option_strings:
                yield f"[{name}]" if action.nargs == "?" else name
            elif action.required:
                yield f"{action.option_strings[-1]} {name}"


def _wrapped(paragraph: str) -> str:
    return fill(" ".join(paragraph.split()), get_terminal_size().columns - 2)


def _path(text: str) -> Path:
    if not text:
        # Python takes it for the working folder.
        raise argparse.ArgumentTypeError("got an empty text, need a path")
    try:
        return path_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"got {SHORT.repr(text)}, need {error}"
        ) from None


def add_common(parser: argparse.ArgumentParser, **changes: Any) -> None:
    """Declare the flags of every verb; an action of a verb has them with `default` SUPPRESS, so as to keep them."""
    parser.add_argument(
        "--json", action="store_true", help="Print the result as JSON.", **changes
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="Print no progress and no warnings to stderr.",
        **changes,
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="Log every step to stderr.",
        **changes,
    )
