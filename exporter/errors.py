"""Every error that a user can cause: one line, exit code 2, no stack trace.

The line has four parts in this order: what it is about, what came, what was expected, what to do.
Anything else that is raised is a bug and keeps its trace.
"""

__all__ = [
    "ArtefactError",
    "CalibrationError",
    "CheckpointError",
    "ImageError",
    "MissingDependencyError",
    "ModelError",
    "OutputError",
    "ParityError",
    "RecipeError",
    "ScheduleError",
    "UserError",
]


class UserError(Exception):
    """The base: the command line prints it as one line and exits with 2.

    Args:
        subject: What the error is about, e.g. "rho" or the path of a file.
        got: What came.
        expected: What was expected instead.
        hint: What to do, where that is not plain from what was expected.
    """

    def __init__(self, subject: str, got: str, expected: str, hint: str = "") -> None:
        self.subject, self.got, self.expected, self.hint = subject, got, expected, hint
        super().__init__(
            " | ".join(part for part in (subject, f"got {got}", f"need {expected}", hint) if part)
        )


class ModelError(UserError):
    """A model that is unknown, or that cannot be pruned."""


class CheckpointError(UserError):
    """A checkpoint that is not weights, or whose keys or shapes are another model's."""


class ImageError(UserError):
    """A folder of images that holds too few, or none."""


class CalibrationError(UserError):
    """Calibration settings that the model or the images do not allow."""


class ScheduleError(UserError):
    """A retention rate, rho, alpha or ACS outside its range; names the layer where there is one."""


class ArtefactError(UserError):
    """A file of ours that is broken, of another kind, or made for another model."""


class OutputError(UserError):
    """A place that cannot be written."""


class ParityError(UserError):
    """Two models that cannot be compared."""


class RecipeError(UserError):
    """A recipe with an unknown key or a value of the wrong type."""


class MissingDependencyError(UserError):
    """A library that this step needs and that is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(library, "no such library", "it installed", f"pip install 'star-export[{extra}]'")
