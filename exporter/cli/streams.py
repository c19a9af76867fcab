"""Handle a stdout that is closed or full, and characters that a stream cannot encode."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from exporter.errors import ArtefactError

__all__ = ["CLOSED", "checked_streams"]

# The exit code of a command that lost its reader, as that of a process that SIGPIPE ends.
CLOSED = 141


@contextmanager
def checked_streams() -> Iterator[None]:
    """Print characters that a stream cannot encode as escapes, and write all of stdout before the command ends.

    Raises:
        SystemExit: The reader of the pipe is gone, as `head` is after its lines; the code is CLOSED.
        ArtefactError: stdout takes no more for another reason, e.g. a full disk.
    """
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError:
        fault = _fault_of_stdout()
        if fault is None:
            raise
        if isinstance(fault, BrokenPipeError):
            raise SystemExit(CLOSED) from None
        raise ArtefactError("stdout", str(fault.strerror), "a place to write the result") from None


def _open_closed() -> None:
    """Open what the shell closed, e.g. by `>&-`, to nowhere: else the next file that is opened takes its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123


def _fault_of_stdout() -> OSError | None:
    """Return why stdout takes no more, and drop what it still holds; None if it takes another line."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as fault:
        # Python writes the rest once more as it ends, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return fault
    return None
