"""The CdfRetain plugin: write its source and build command, and check the built library."""

import ctypes
import shutil
from pathlib import Path

from exporter.bundled import PLUGIN_SOURCE
from exporter.errors import ArtefactError, OutputError, UserError
from exporter.runtimes.tensorrt.tensorrt_api import major_version

__all__ = ["LIBRARY", "build_command", "checked_library", "write_source"]

LIBRARY = "libcdf_retain_plugin.so"

# TensorRT's two entry points, and star-export's, which returns the major version of the headers used.
_ENTRIES = ("getCreators", "setLoggerFinder")
_MAJOR = "cdfRetainTensorRtMajor"

_HINT = "star-export plugin --out DIR writes its source and prints the build command"


def write_source(place: Path) -> None:
    """Copy the plugin's source into a folder, and overwrite files of the same name.

    Raises:
        OutputError: The folder cannot be written.
    """
    try:
        shutil.copytree(PLUGIN_SOURCE, place, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise OutputError(str(place), str(error), "a folder that can be written") from None


def build_command(source: Path) -> str:
    """Return the command that builds the library as `build/libcdf_retain_plugin.so` in that folder."""
    headers = "TENSORRT_INCLUDE_DIR=/path/to/TensorRT/include"
    return f"{headers} cmake -S {source} -B {source}/build && cmake --build {source}/build --parallel"


def checked_library(path: Path, tensorrt: str) -> Path:
    """Check a plugin library against a version of TensorRT, and return its path.

    Args:
        path: The library.
        tensorrt: The version of TensorRT, e.g. "10.16.1.11".

    Raises:
        ArtefactError: The file is missing, is not the library, or was built for another major version.
        UserError: This TensorRT does not support plugins with data-dependent shapes.
    """
    major = major_version(tensorrt)
    if major < 10:
        raise UserError(
            "the CdfRetain plugin", f"TensorRT {tensorrt}", "10 or later", "use the padded layout"
        )
    if not path.is_file():
        raise ArtefactError(str(path), "no such file", "the built CdfRetain library", _HINT)
    try:
        library = ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        raise ArtefactError(str(path), str(error), "a library that loads", _HINT) from None
    if not all(hasattr(library, entry) for entry in (*_ENTRIES, _MAJOR)):
        raise ArtefactError(str(path), "a library without its entry points", "the CdfRetain library", _HINT)
    built = getattr(library, _MAJOR)
    built.restype = ctypes.c_int32
    if built() != major:
        got = f"one built with the headers of TensorRT {built()}"
        raise ArtefactError(str(path), got, f"those of {major}, which is here", _HINT)
    return path
