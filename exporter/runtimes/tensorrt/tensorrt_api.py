"""Import TensorRT and look up its flags and enum members by name. Only this file imports TensorRT.

Values cannot be used: TensorRT 11 removed flags of 10 and renumbered the others.
"""

import importlib
import re
from typing import Any

from exporter.errors import UserError

__all__ = [
    "error_log",
    "flag_bit",
    "import_tensorrt",
    "major_version",
    "member",
    "needs_strong_typing_flag",
    "version_numbers",
]

INSTALL = "pip install tensorrt-cu13 polygraphy cuda-bindings, or one of NVIDIA's TensorRT containers"


def import_tensorrt() -> Any:
    """Import the module `tensorrt`.

    Raises:
        UserError: It is not installed, or a library that it needs (CUDA, its own) does not load.
    """
    try:
        return importlib.import_module("tensorrt")
    except ImportError as error:
        got = "no such library" if isinstance(error, ModuleNotFoundError) else str(error)
        raise UserError("tensorrt", got, "TensorRT 10 or 11 with its Python bindings", INSTALL) from None


def error_log(trt: Any) -> Any:
    """Create a logger that keeps TensorRT's last error in `last`: TensorRT logs the reason and returns None."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.last = ""

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.last = text

    return Log()


def major_version(version: str) -> int:
    """Return the first number of a version."""
    return version_numbers(version)[0]


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare with those of another: "10.16.1.11" gives (10, 16, 1, 11)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def member(trt: Any, enum: str, name: str, wish: str) -> Any:
    """Return a member of one of TensorRT's enums.

    Args:
        trt: The module `tensorrt`.
        enum: The enum's name, e.g. "BuilderFlag".
        name: The member's name.
        wish: The flag or feature that needs it, for the error message.

    Raises:
        UserError: This version does not have the member.
    """
    found = getattr(getattr(trt, enum, None), name, None)
    if found is None:
        raise UserError(wish, f"TensorRT {trt.__version__}, which has no {enum}.{name}", "a version that has")
    return found


def flag_bit(trt: Any, name: str) -> int:
    """Return a network flag as a bit for `create_network`; 0 if this version does not have the flag."""
    found = getattr(trt.NetworkDefinitionCreationFlag, name, None)
    return 0 if found is None else 1 << int(found)


def needs_strong_typing_flag(trt: Any) -> bool:
    """Return whether strong typing needs a flag, as in 9 and 10. 11 always uses it, 8.6 does not support it."""
    return major_version(trt.__version__) in (9, 10)
