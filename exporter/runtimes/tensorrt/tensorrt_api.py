"""The one place that imports TensorRT, and looks up what a version has: by name, never by value.

Between 10 and 11 flags were removed and the others renumbered.
"""

import importlib
from typing import Any

from exporter.errors import UserError

__all__ = ["error_log", "flag_bit", "import_tensorrt", "major_version", "member", "needs_strong_typing_flag"]

INSTALL = "pip install tensorrt-cu13 polygraphy cuda-bindings, or one of NVIDIA's TensorRT containers"


def import_tensorrt() -> Any:
    """The module `tensorrt`.

    Raises:
        UserError: It is not installed, or what it stands on (CUDA, its own libraries) does not load.
    """
    try:
        return importlib.import_module("tensorrt")
    except ImportError as error:
        got = "no such library" if isinstance(error, ModuleNotFoundError) else str(error)
        raise UserError("tensorrt", got, "TensorRT 10 or 11 with its Python bindings", INSTALL) from None


def error_log(trt: Any) -> Any:
    """A logger for TensorRT's objects whose `last` is the last error: TensorRT says why there, and returns None."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.last = ""

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.last = text

    return Log()


def major_version(version: str) -> int:
    """The first number of a version."""
    return int(version.split(".", maxsplit=1)[0])


def member(trt: Any, enum: str, name: str, wish: str) -> Any:
    """One member of an enum of TensorRT's.

    Args:
        trt: The module.
        enum: The enum's name, e.g. "BuilderFlag".
        name: The member's name.
        wish: What it is for, in the user's words.

    Raises:
        UserError: This version does not have it.
    """
    found = getattr(getattr(trt, enum, None), name, None)
    if found is None:
        raise UserError(wish, f"TensorRT {trt.__version__}, which has no {enum}.{name}", "a version that has")
    return found


def flag_bit(trt: Any, name: str) -> int:
    """A network flag as the bit that `create_network` takes; 0 where this version does without the flag."""
    found = getattr(trt.NetworkDefinitionCreationFlag, name, None)
    return 0 if found is None else 1 << int(found)


def needs_strong_typing_flag(trt: Any) -> bool:
    """Whether a network follows the types of the graph only when told; 11 knows nothing else, 8.6 not at all."""
    return major_version(trt.__version__) in (9, 10)
