"""The plugin library: which models call it, its source and build command, and the check of a built one."""

import ctypes
import shutil
from pathlib import Path
from typing import Any

from exporter.bundled import PLUGIN_SOURCE
from exporter.core.base.errors import ArtefactError, reason_of
from exporter.core.base.files import folder_beside
from exporter.core.base.onnx_file import load_onnx
from exporter.engines.tool import major_version, require_version

LIBRARY = "libcdf_retain_plugin.so"

# An entry point of star-export's, beside TensorRT's: it returns the major version of the headers used.
_MAJOR = "cdfRetainTensorRtMajor"

# By these TensorRT's parser finds a plugin: the node's type, plugin_version and plugin_namespace.
# Nodes of this domain have all three.
_DOMAIN = "star"
_CREATOR = ("CdfRetain", "1", _DOMAIN)

# The first version whose parser prefers a plugin to a local function of the same name. The function's body sizes a
# tensor by the values of another: TensorRT for RTX builds it, and loses the fused attention of most blocks.
LEAST_VERSION = (10, 7)

_HINT = "star-export build --plugin-source DIR writes its source and prints the build command"


def calls_plugin(onnx: Path) -> bool:
    """Whether an engine of a model needs the library: its graph has a node of ours."""
    return any(node.domain == _DOMAIN for node in load_onnx(onnx).graph.node)


def write_source(place: Path) -> None:
    """Copy the plugin's source into a folder, all of it or nothing, and overwrite files of the same name."""
    with folder_beside(place) as aside:
        for source in (path for path in PLUGIN_SOURCE.rglob("*") if path.is_file()):
            copy = aside / source.relative_to(PLUGIN_SOURCE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)


def plugin_command(source: Path) -> str:
    """Return the command that builds the library as `build/libcdf_retain_plugin.so` in that folder."""
    headers = "TENSORRT_INCLUDE_DIR=/path/to/TensorRT/include"
    return f"{headers} cmake -S {source} -B {source}/build && cmake --build {source}/build --parallel"


def check_version(tensorrt: str) -> None:
    """Raise UserError for a TensorRT that would parse the operator's function body instead of the plugin."""
    hint = "use the padded layout"
    require_version("the CdfRetain plugin", tensorrt, LEAST_VERSION, hint=hint)


def checked_library(path: Path, tensorrt: str) -> Path:
    """Check a plugin library against a version of TensorRT, e.g. "10.16.1.11", and return its path."""
    check_version(tensorrt)
    major = major_version(tensorrt)
    try:
        built = ctypes.CDLL(str(path.resolve()))[_MAJOR]()
    except (OSError, AttributeError) as error:
        expected = "the built CdfRetain library"
        raise ArtefactError(path, reason_of(error), expected, _HINT) from None
    if built != major:
        got = f"one built with the headers of TensorRT {built}"
        raise ArtefactError(path, got, f"those of {major}, which is here", _HINT)
    return path


def register_library(registry: Any, library: Path) -> None:
    """Load a checked library into TensorRT's plugin registry, unless its plugin is registered already."""
    if registry.get_creator(*_CREATOR) is None:
        registry.load_library(str(library))
