"""TensorRT or TensorRT for RTX, driven by Polygraphy. Only this file imports them.

Polygraphy takes one of the two for the whole process. It prints what they log; here nothing is printed, and an
error has the first line that was logged.
"""

import importlib
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from exporter.core.base.errors import ArtefactError, MissingDependencyError, UserError
from exporter.core.base.targets import Runtime

INSTALL = (
    "pip install tensorrt-cu13 polygraphy --extra-index-url https://pypi.nvidia.com, or one of NVIDIA's TensorRT "
    "containers; with trtexec alone: sh trtexec.sh in the folder"
)
_OLD_DRIVER = "a driver for TensorRT's CUDA: a newer one, or tensorrt-cu12 in place of tensorrt-cu13"
_CUDART = (
    "pip install nvidia-cuda-runtime-cu12, or the folder of libcudart.so in LD_LIBRARY_PATH: "
    "pip's is site-packages/nvidia/cu13/lib"
)

# Where the driver is older than TensorRT's CUDA, an object is made, and its first use ends the process.
_PROBE = """
import ctypes, sys, tensorrt
try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit()
tensorrt.Builder(tensorrt.Logger(tensorrt.Logger.ERROR)).create_builder_config()
"""

# Warnings of the parser of TensorRT for RTX after which the engine computes something else than the file.
WRONG = ("precision-lose casting", "Unused Input", "already exists")


MODULES = (
    "backend.trt",
    "backend.tensorrt_rtx",
    "backend.trt.util",
    "exception",
    "logger",
)


@dataclass(frozen=True)
class Tool:
    """One of the two: its module `trt`, and what Polygraphy has for it.

    `log` keeps in `cause` the first error since `clear`; the errors after it are its consequences. `error` is
    Polygraphy's exception.
    """

    runtime: Runtime
    trt: Any
    polygraphy: Any
    create_config: Any
    error: type[Exception]
    log: Any

    @property
    def version(self) -> str:
        """That of TensorRT, or of TensorRT for RTX, whose versions are its own: 1.7 is no TensorRT before 8."""
        return str(self.trt.__version__)

    @contextmanager
    def in_one_line(
        self, subject: Path | str, expected: str, hint: str = ""
    ) -> Iterator[None]:
        """Turn what Polygraphy raises into an ArtefactError, with the reason from the log."""
        self.log.clear()
        try:
            with warnings.catch_warnings():
                # Of what Polygraphy calls.
                warnings.simplefilter("ignore", DeprecationWarning)
                yield
        except self.error as error:
            reason = self.log.cause or str(error)
            raise ArtefactError(subject, reason, expected, hint) from None
        except TypeError:
            # What the bindings raise where CUDA does not start.
            if not self.log.cause:
                raise
            raise UserError(self.runtime.title, self.log.cause, _OLD_DRIVER) from None
        except OSError as error:
            # Polygraphy does not look for libcudart where TensorRT's wheels have it.
            raise UserError(
                str(subject), str(error), "CUDA's runtime library", _CUDART
            ) from None


@cache
def tool_of(runtime: Runtime) -> Tool:
    """Import a runtime of engines, and Polygraphy for it; MissingDependencyError where one of them is missing."""
    trt = _imported(runtime)
    backend, rtx, util, exception, logger = _polygraphy(runtime)
    logger.G_LOGGER.module_severity = logger.G_LOGGER.CRITICAL + 1
    util.TRT_LOGGER = log_of(trt, WRONG if runtime.ahead else ())
    create = rtx.CreateConfigRTX if runtime.ahead else backend.CreateConfig
    error = exception.PolygraphyException
    return Tool(runtime, trt, backend, create, error, util.TRT_LOGGER)


def _polygraphy(runtime: Runtime) -> list[Any]:
    """Import the modules of Polygraphy in use, which are bound to one of the two then."""
    with warnings.catch_warnings():
        # Its own, on Python 3.13.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            config: Any = importlib.import_module("polygraphy.config")
            config.USE_TENSORRT_RTX = runtime.ahead
            return [importlib.import_module(f"polygraphy.{name}") for name in MODULES]
        except ImportError:
            raise MissingDependencyError("polygraphy", runtime.name) from None


def _imported(runtime: Runtime) -> Any:
    name = runtime.name.replace("-", "_")
    hint = "" if runtime.ahead else INSTALL
    try:
        trt = importlib.import_module(name)
    except ModuleNotFoundError:
        raise MissingDependencyError(name, runtime.name, hint) from None
    except ImportError as error:
        raise UserError(name, str(error), "a library that loads", hint) from None
    if not runtime.ahead:
        _check_start()
    return trt


def _check_start() -> None:
    """Raise UserError if the first objects of TensorRT end a child process; without a driver none is made."""
    command = [sys.executable, "-c", _PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        logged = (done.stdout + done.stderr).strip().splitlines()
        reason = logged[-1] if logged else f"exit status {done.returncode}"
        raise UserError("tensorrt", reason, _OLD_DRIVER)


def log_of(trt: Any, wrong: tuple[str, ...] = ()) -> Any:
    """Create a logger of TensorRT; a message with one of the words of `wrong` counts as an error."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.cause = ""

        def clear(self) -> None:
            self.cause = ""

        def log(self, severity: Any, text: str) -> None:
            failed = severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR)
            if not self.cause and (failed or any(words in text for words in wrong)):
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
