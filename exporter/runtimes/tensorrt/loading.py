"""Load an engine into TensorRT after checking its manifest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.errors import ArtefactError
from exporter.runtimes.tensorrt.machine import this_machine
from exporter.runtimes.tensorrt.manifest import EngineManifest, check_manifest
from exporter.runtimes.tensorrt.plugin_library import checked_library, register_library
from exporter.runtimes.tensorrt.tensorrt_api import error_log, import_tensorrt, member

__all__ = ["LoadedEngine", "load_engine", "without_nvtx"]


@dataclass(frozen=True)
class LoadedEngine:
    """A deserialised engine with the module `tensorrt`, the logger that records errors, and the manifest."""

    name: str
    trt: Any
    engine: Any
    log: Any
    manifest: EngineManifest

    def tensors(self, mode: str) -> tuple[str, ...]:
        """Return the names of the inputs ("INPUT") or outputs ("OUTPUT"), in the engine's order."""
        names = [self.engine.get_tensor_name(index) for index in range(self.engine.num_io_tensors)]
        wanted = getattr(self.trt.TensorIOMode, mode)
        return tuple(name for name in names if self.engine.get_tensor_mode(name) == wanted)


def load_engine(engine: Path, onnx: Path, *, plugin: Path | None = None, name: str = "") -> LoadedEngine:
    """Load an engine that `build` wrote.

    Args:
        engine: The engine file; its manifest is beside it.
        onnx: The ONNX file that it was built from.
        plugin: The CdfRetain library, for an engine that needs it and does not contain it.
        name: Name in errors; by default the file's name.

    Raises:
        ArtefactError: The engine is for another model, machine or TensorRT, or TensorRT cannot load it.
        UserError: TensorRT or a GPU is missing.
    """
    trt, name = import_tensorrt(), name or engine.name
    library = None if plugin is None else checked_library(plugin, trt.__version__)
    manifest = check_manifest(engine, onnx, this_machine(trt.__version__), library)
    log = error_log(trt)
    trt.init_libnvinfer_plugins(log, "")
    if manifest.needs_plugin and library is None:
        raise ArtefactError(name, "no plugin", "the CdfRetain library", "--plugin FILE")
    runtime = trt.Runtime(log)
    # A version-compatible engine contains code, and may contain the plugin; its checksum matches the manifest's.
    runtime.engine_host_code_allowed = manifest.version_compatible
    if manifest.needs_plugin and library is not None:
        register_library(runtime.get_plugin_registry(), library)
    loaded = runtime.deserialize_cuda_engine(engine.read_bytes())
    if loaded is None:
        raise ArtefactError(
            str(engine), log.last or "no reason", "an engine that TensorRT loads", "star-export build"
        )
    return LoadedEngine(name, trt, loaded, log, manifest)


def without_nvtx(trt: Any, context: Any) -> None:
    """Stop an execution context from marking layers for profilers, as those of engines with details do."""
    context.nvtx_verbosity = member(trt, "ProfilingVerbosity", "NONE", "timing")
