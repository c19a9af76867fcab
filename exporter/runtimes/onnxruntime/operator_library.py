"""The library of ONNX Runtime operators that choose patches in one node: build it, find it, check it."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from exporter.bundled import OPERATORS_SOURCE, PLUGIN_SOURCE
from exporter.errors import ArtefactError, UserError
from exporter.files import written_beside
from exporter.runtimes.native_library import opened_library
from exporter.targets import ONNXRUNTIME

__all__ = ["LIBRARY", "build_library", "checked_library", "lacks_operators", "library_place"]

LIBRARY = "libstar_ops.so"

# ONNX Runtime's entry point, and star-export's, which returns the minor version of the first release that will do.
_LEAST_RUNTIME = "starOpsLeastRuntime"
_ENTRIES = ("RegisterCustomOps", _LEAST_RUNTIME)

_HEADER = "onnxruntime_c_api.h"
_COMPILERS = ("c++", "g++", "clang++")
# No fast mathematics: every CPU gives the same scores, and equal patches get equal ones.
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden")

_WHAT, _HINT = "library of operators", "star-export ops build"


def library_place() -> Path:
    """Return where the library is: the file STAR_OPS_LIBRARY, or in the user's cache, where `ops build` puts it."""
    named = os.environ.get("STAR_OPS_LIBRARY")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "star-export" / LIBRARY


def build_library(path: Path) -> None:
    """Compile the library for this machine's kind of CPU, with the compiler CXX or the first one found.

    Raises:
        UserError: There is no compiler, no header of ONNX Runtime, or the source does not compile with them.
        OutputError: The place cannot be written.
    """
    compiler, headers = _compiler(), _headers()
    folders = [f"-I{folder}" for folder in (headers, PLUGIN_SOURCE)]
    sources = sorted(map(str, OPERATORS_SOURCE.glob("*.cpp")))
    with written_beside(path) as partial:
        command = [*compiler, *_FLAGS, *folders, *sources, "-o", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            got = (lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
            raise UserError(
                shlex.join(compiler), got, "a C++17 compiler, and headers of ONNX Runtime >= 1.17"
            )


def checked_library(path: Path, onnxruntime: str) -> Path:
    """Check the library against a version of ONNX Runtime, and return its path.

    Raises:
        ArtefactError: The file is missing, is not the library, or needs a later version.
    """
    library = opened_library(path, _ENTRIES, _WHAT, _HINT)
    minor, least = int(onnxruntime.split(".")[1]), getattr(library, _LEAST_RUNTIME)()
    if minor < least:
        hint = f"or an export with --target {ONNXRUNTIME.name}"
        raise ArtefactError(
            str(path), f"ONNX Runtime {onnxruntime}", f"ONNX Runtime >= 1.{least} for it", hint
        )
    return path


def lacks_operators(reason: str) -> bool:
    """Whether ONNX Runtime's reason for not loading a model is that operators of ours are not registered."""
    return "star:" in reason and "is not a registered function/op" in reason


def _compiler() -> list[str]:
    named = os.environ.get("CXX")
    if named:
        if shutil.which(shlex.split(named)[0]) is None:
            raise UserError("CXX", named, "a C++ compiler that is installed")
        return shlex.split(named)
    found = next((name for name in _COMPILERS if shutil.which(name)), None)
    if found is None:
        raise UserError(
            "a C++ compiler", f"none of {', '.join(_COMPILERS)}", "one on PATH, or its path in CXX"
        )
    return [found]


def _headers() -> Path:
    """Return the folder of ONNX Runtime's headers: no wheel holds them."""
    folder = os.environ.get("ONNXRUNTIME_INCLUDE_DIR", "")
    if not folder or not (Path(folder) / _HEADER).is_file():
        got = f"no {_HEADER} in {folder!r}" if folder else "nothing"
        hint = "export it: include/ of a release, or /usr/include/onnxruntime of libonnxruntime-dev"
        raise UserError("ONNXRUNTIME_INCLUDE_DIR", got, "the folder of ONNX Runtime's headers", hint)
    return Path(folder)
