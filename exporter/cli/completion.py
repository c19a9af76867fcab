"""Tab completion of verbs, flags and their words, with argcomplete.

`eval "$(register-python-argcomplete star-export)"` switches it on in a shell. The shell then runs the command with
`_ARGCOMPLETE` set each time that Tab is pressed.
"""

import argparse

from exporter.errors import MissingDependencyError

__all__ = ["complete"]


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions of the words typed so far, and exit.

    Raises:
        MissingDependencyError: argcomplete is not installed.
    """
    try:
        import argcomplete  # noqa: PLC0415
    except ImportError:
        raise MissingDependencyError("argcomplete", "completion") from None
    argcomplete.autocomplete(parser)
