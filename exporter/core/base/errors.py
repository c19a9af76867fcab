"""Errors that a user can cause. The command line prints them as one line and exits with 2.

The line has four parts in this order: the subject, the value found, the value expected, a hint.
Any other exception is a bug and keeps its stack trace.
"""

import importlib
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exporter.core.base.version import VERSION

# Characters of another library's message that a line of ours quotes.
LONGEST = 160

# A line shortens long values.
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxlong = SHORT.maxother = 60


class UserError(Exception):
    """Base class of all errors that a user can cause.

    Args:
        subject: The setting or file that the error is about, e.g. "rho", or a path.
        got: The value found.
        expected: The value expected instead.
        hint: How to fix it, if `expected` does not make that clear.
    """

    def __init__(
        self, subject: str | Path, got: str, expected: str, hint: str = ""
    ) -> None:
        self.subject = str(subject)
        self.got, self.expected, self.hint = got, expected, hint
        parts = (self.subject, f"got {got}", f"need {expected}", hint)
        super().__init__(" | ".join(filter(None, parts)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a process send it to another, as exceptions do only where they keep what they are made of."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class ModelError(UserError):
    """A model that is unknown, or that cannot be pruned."""


class HubError(ModelError):
    """A hub that cannot be reached: nothing is known of the model."""


class CheckpointError(UserError):
    """A checkpoint without weights, or with keys or shapes of another model."""


class DepthError(UserError):
    """A depth plan that the model does not allow, or samples and a budget that determine none."""


class ImageError(UserError):
    """A folder with too few images, or none."""


class LaunchError(UserError):
    """Processes of one job that do not find each other, or that were given different things."""


class CalibrationError(UserError):
    """Calibration settings that the model or the images do not allow."""


class ScheduleError(UserError):
    """A retention rate, rho, alpha or ACS outside its range. Names the layer if there is one."""


class ArtefactError(UserError):
    """An artefact that is broken, of the wrong kind, or made for another model."""


class OutputError(UserError):
    """A path that cannot be written."""


class ParityError(UserError):
    """Two models that cannot be compared."""


class RecipeError(UserError):
    """A recipe with an unknown key or a value of the wrong type."""


class MissingDependencyError(UserError):
    """A required library that is not installed; `hint` says how to get it, by default by an extra of ours."""

    def __init__(self, library: str, extra: str, hint: str = "") -> None:
        hint = hint or f"pip install 'star-export[{extra}]'"
        super().__init__(library, "no such library", "it installed", hint)


def imported(module: str, library: str, extra: str) -> Any:
    """Import a module of a library; MissingDependencyError names the extra of star-export that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingDependencyError(library, extra) from None


@contextmanager
def as_written(place: str | Path, what: str = "the file") -> Iterator[None]:
    """Within the `with`, whatever goes wrong with a file of ours is one sentence: nobody looks for what changed it.

    That an export folder is whole, its checksums say.
    """
    try:
        yield
    except MissingDependencyError:
        raise
    except Exception as error:
        got = error.got if isinstance(error, UserError) else reason_of(error)
        expected = f"{what} as star-export {VERSION} wrote it"
        raise ArtefactError(place, got, expected, "make it again") from None


def reason_of(error: BaseException) -> str:
    """Return what another library's error says, in one short line.

    That of a file without its number and path, which our own line names; a missing key by name; else the first
    line, or the type where it says nothing.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError) and len(error.args) == 1:
        return f"no {error.args[0]!r}"
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST] if lines else type(error).__name__
