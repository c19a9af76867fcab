"""The CdfRetain plugin as a built library: there, whole, and of the right TensorRT, or refused in one line."""

import ctypes
from pathlib import Path

from exporter.engines.library import major_version
from exporter.errors import ArtefactError, UserError

__all__ = ["BUILD", "LIBRARY", "checked_library"]

LIBRARY = "libcdf_retain_plugin.so"
BUILD = (
    "TENSORRT_INCLUDE_DIR=/path/to/TensorRT/include cmake -S plugins/cdf_retain -B build/cdf_retain && "
    "cmake --build build/cdf_retain"
)

# TensorRT's two, by which it loads the library, and ours, which says whose headers it was built with.
_ENTRIES = ("getCreators", "setLoggerFinder")
_MAJOR = "cdfRetainTensorRtMajor"


def checked_library(path: Path, tensorrt: str) -> Path:
    """A plugin library that this TensorRT can take.

    Args:
        path: The library.
        tensorrt: The version of TensorRT, e.g. "10.16.1.11".

    Raises:
        ArtefactError: It is missing, is none, or was built for another major version.
        UserError: This TensorRT knows no such plugins.
    """
    major = major_version(tensorrt)
    if major < 10:
        raise UserError(
            "the CdfRetain plugin", f"TensorRT {tensorrt}", "10 or later", "take the padded flavour"
        )
    if not path.is_file():
        raise ArtefactError(str(path), "no such file", "the built CdfRetain library", BUILD)
    try:
        library = ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        raise ArtefactError(str(path), str(error), "a library that loads", BUILD) from None
    if not all(hasattr(library, entry) for entry in (*_ENTRIES, _MAJOR)):
        raise ArtefactError(str(path), "a library without our entry points", "the CdfRetain library", BUILD)
    built = getattr(library, _MAJOR)
    built.restype = ctypes.c_int32
    if built() != major:
        got = f"one built with the headers of TensorRT {built()}"
        raise ArtefactError(str(path), got, f"those of {major}, which is here", BUILD)
    return path
