"""Import TensorRT, or TensorRT for RTX, and look up flags and enum members by name. Only this file imports them.

Values cannot be used: TensorRT 11 removed flags of 10 and renumbered the others.
"""

import ctypes
import importlib
import re
import subprocess
import sys
from functools import cache
from typing import Any

from exporter.core.base.errors import MissingDependencyError, UserError

INSTALL = (
    "pip install tensorrt-cu13 polygraphy --extra-index-url https://pypi.nvidia.com, "
    "or one of NVIDIA's TensorRT containers"
)
_OLD_DRIVER = "a driver for TensorRT's CUDA: a newer one, or tensorrt-cu12 in place of tensorrt-cu13"

# Where the driver is older than TensorRT's CUDA, an object is made, and its first use ends the process.
_PROBE = """
import tensorrt
log = tensorrt.Logger(tensorrt.Logger.ERROR)
tensorrt.Builder(log).create_builder_config()
tensorrt.Runtime(log).engine_host_code_allowed = True
"""
_PROBE_LIMIT_S = 300


def import_tensorrt() -> Any:
    """Import the module `tensorrt`; where there is a driver, a child process first tries whether it starts."""
    try:
        trt = importlib.import_module("tensorrt")
    except ModuleNotFoundError:
        raise MissingDependencyError("tensorrt", "tensorrt", INSTALL) from None
    except ImportError as error:
        raise UserError(
            "tensorrt", str(error), "a library that loads", INSTALL
        ) from None
    # without one, nothing of TensorRT is made
    reason = _why_it_does_not_start() if has_driver() else ""
    if reason:
        raise UserError("tensorrt", reason, _OLD_DRIVER)
    return trt


def import_rtx() -> Any:
    """Import the module `tensorrt_rtx`."""
    try:
        return importlib.import_module("tensorrt_rtx")
    except ModuleNotFoundError:
        raise MissingDependencyError("tensorrt_rtx", "tensorrt-rtx") from None
    except ImportError as error:
        raise UserError("tensorrt_rtx", str(error), "a library that loads") from None


def has_driver() -> bool:
    """Return whether NVIDIA's driver is installed."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@cache
def _why_it_does_not_start() -> str:
    """Return what TensorRT says when a child process makes its first objects; "" if it makes them."""
    command = [sys.executable, "-c", _PROBE]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PROBE_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"a first use that does not end in {_PROBE_LIMIT_S} s"
    if not done.returncode:
        return ""
    said = [
        line.strip()
        for line in (done.stdout + done.stderr).splitlines()
        if line.strip()
    ]
    logged = [line for line in said if "[TRT]" in line]
    ended = (
        f"signal {-done.returncode}"
        if done.returncode < 0
        else f"exit status {done.returncode}"
    )
    return f"{(logged[:1] or said[-1:] or ['no word'])[0]}, then {ended}"


def started(trt: Any, kind: str, log: Any) -> Any:
    """Make TensorRT's `Builder` or `Runtime`; UserError, with its log, where its bindings raise a TypeError."""
    try:
        return getattr(trt, kind)(log)
    except TypeError as error:
        raise UserError(
            f"TensorRT's {kind}", log.cause or str(error), _OLD_DRIVER
        ) from None


def error_log(trt: Any, also: tuple[str, ...] = ()) -> Any:
    """Create a logger that keeps in `cause` the first error since `clear`: TensorRT logs it and returns None.

    The errors after the first are its consequences. A message with one of the words of `also` counts as an error.
    """

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cause = ""

        def clear(self) -> None:
            self.cause = ""

        def log(self, severity: Any, text: str) -> None:
            failed = severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR)
            if not self.cause and (failed or any(words in text for words in also)):
                self.cause = text

    return Log()


def major_version(version: str) -> int:
    """Return the first number of a version."""
    return version_numbers(version)[0]


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare with those of another: "10.16.1.11" gives (10, 16, 1, 11)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def require_version(
    subject: str, version: str, least: tuple[int, ...], why: str = "", hint: str = ""
) -> None:
    """Raise UserError about the subject, which needs TensorRT `least` or later, for an earlier version."""
    if version_numbers(version) < least:
        expected = f"{'.'.join(map(str, least))} or later{why}"
        raise UserError(subject, f"TensorRT {version}", expected, hint)


def member(trt: Any, enum: str, name: str, wish: str) -> Any:
    """Return a member of one of TensorRT's enums; UserError, with the `wish` that needs it, where it is missing."""
    value = getattr(getattr(trt, enum, None), name, None)
    if value is None:
        got = f"TensorRT {trt.__version__}, which has no {enum}.{name}"
        raise UserError(wish, got, "a version that has")
    return value
