"""Tab completion of verbs, flags and their words, with argcomplete.

`eval "$(register-python-argcomplete star-export)"` switches it on in a shell. The shell then runs the command with
`_ARGCOMPLETE` set each time that Tab is pressed.
"""

import argparse
from collections.abc import Iterable
from typing import Any

from exporter.errors import MissingDependencyError

__all__ = ["complete"]

# The flags that take the name of a model; others are completed by their words, or with files.
TAKES_MODEL = ("model", "why")


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions of the words typed so far, and exit.

    Raises:
        MissingDependencyError: argcomplete is not installed.
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
