"""`Runner` for an engine of TensorRT or TensorRT for RTX, loaded after its manifest was compared with this machine.

Polygraphy runs it, which keeps buffers between runs and allocates outputs of data-dependent sizes.
"""

import ctypes
import importlib
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.core.base.errors import (
    ArtefactError,
    MissingDependencyError,
    UserError,
    reason_of,
)
from exporter.core.base.files import written_beside
from exporter.core.base.targets import Runtime
from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.verify.runner import Feed, Runner, TensorInfo
from exporter.engines.manifest import (
    ENGINES,
    Built,
    EngineManifest,
    check_manifest,
    engine_path,
    profile_for,
    read_manifest,
)
from exporter.engines.plugin_library import checked_library, register_library
from exporter.engines.tensorrt_api import (
    error_log,
    import_rtx,
    import_tensorrt,
    member,
    started,
)

# Constants of the CUDA driver API (cuda.h), which is stable.
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NAME_BYTES = 256
_UUID_BYTES = 16
_NO_GPU = "a GPU with NVIDIA's driver"
_CUDART = (
    "pip install nvidia-cuda-runtime-cu12, or the folder of libcudart.so in LD_LIBRARY_PATH: "
    "pip's is site-packages/nvidia/cu13/lib"
)


def this_machine(tensorrt: str) -> Built:
    """Query the CUDA driver, which needs no other CUDA library, for the first GPU.

    TensorRT is not queried: without a GPU, creating its first object ends the process. `tensorrt` is its
    version.
    """
    cuda = _driver()
    handle = ctypes.c_int()
    version = ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(handle), 0):
        raise UserError("GPU", "a driver without GPU 0", _NO_GPU)
    cuda.cuDeviceGetName(name, _NAME_BYTES, handle)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    parts = [ctypes.c_int(), ctypes.c_int()]
    for part, attribute in zip(parts, (_MAJOR, _MINOR), strict=True):
        cuda.cuDeviceGetAttribute(ctypes.byref(part), attribute, handle)
    major, minor = (part.value for part in parts)
    cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Built(
        tensorrt,
        cuda_version,
        _driver_version(),
        name.value.decode(),
        f"{major}.{minor}",
    )


def engine_here(onnx: Path, tool: Runtime, batch: int = 0) -> Path:
    """Return the path of an ONNX file's engine for this machine, by the tool that built it; see `engine_path`."""
    folder = onnx.parent / ENGINES
    if not tool.ahead:
        return engine_path(folder, onnx, batch)
    return engine_path(
        folder, onnx, batch, sm=int(this_machine("").sm.replace(".", ""))
    )


def gpu_uuid() -> str:
    """Return the UUID of the first GPU that CUDA_VISIBLE_DEVICES leaves, "GPU-…" as in nvidia-smi; "" without."""
    try:
        cuda = _driver()
    except UserError:
        return ""
    handle = ctypes.c_int()
    number = ctypes.create_string_buffer(_UUID_BYTES)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(handle), 0):
        return ""
    if cuda.cuDeviceGetUuid_v2(number, handle):
        return ""
    return f"GPU-{uuid.UUID(bytes=number.raw)}"


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise UserError("GPU", "no libcuda.so.1", _NO_GPU) from None


def _driver_version() -> str:
    """Return the version of NVIDIA's kernel module, or "unknown"."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


@dataclass(frozen=True)
class LoadedEngine:
    """A deserialised engine with the module that made it, the logger that records errors, and the manifest."""

    path: Path
    trt: Any
    engine: Any
    log: Any
    manifest: EngineManifest

    def tensors(self, mode: str) -> tuple[TensorInfo, ...]:
        """Return the model's inputs ("INPUT") or outputs ("OUTPUT"), in the engine's order."""
        names = [
            self.engine.get_tensor_name(index)
            for index in range(self.engine.num_io_tensors)
        ]
        wanted = getattr(self.trt.TensorIOMode, mode)
        return tuple(
            self._info(name)
            for name in names
            if self.engine.get_tensor_mode(name) == wanted
        )

    def _info(self, name: str) -> TensorInfo:
        sizes: tuple[int | str, ...] = tuple(
            size if size >= 0 else "batch" if axis == 0 else ""
            for axis, size in enumerate(self.engine.get_tensor_shape(name))
        )
        dtype = np.dtype(self.trt.nptype(self.engine.get_tensor_dtype(name)))
        return TensorInfo(name, sizes, dtype.name)


def load_engine(
    engine: Path, onnx: Path, *, plugin: Path | None = None
) -> LoadedEngine:
    """Load an engine that `build` wrote of an ONNX file; its manifest is beside it.

    `plugin` is the CdfRetain library, for an engine that needs it and does not contain it.
    """
    tool = read_manifest(engine).settings.tool
    trt = import_rtx() if tool.ahead else import_tensorrt()
    library = None if plugin is None else checked_library(plugin, trt.__version__)
    manifest = check_manifest(engine, onnx, this_machine(trt.__version__), library)
    log = error_log(trt)
    if tool.plugins:
        trt.init_libnvinfer_plugins(log, "")
    if manifest.needs_plugin and library is None:
        raise ArtefactError(
            engine.name, "no plugin", "the CdfRetain library", "--plugin FILE"
        )
    runtime = started(trt, "Runtime", log)
    # A version-compatible engine contains code, and may contain the plugin; its checksum matches the manifest's.
    runtime.engine_host_code_allowed = manifest.settings.version_compatible
    if manifest.needs_plugin and library is not None:
        register_library(runtime.get_plugin_registry(), library)
    loaded = runtime.deserialize_cuda_engine(engine.read_bytes())
    if loaded is None:
        raise ArtefactError(
            engine,
            log.cause or "no reason",
            f"an engine that {tool.title} loads",
            "star-export build",
        )
    return LoadedEngine(engine, trt, loaded, log, manifest)


class CompiledKernels:
    """The runtime cache of TensorRT for RTX, which compiles an engine to the end where it first runs.

    Polygraphy makes no such cache, and launches kernels one by one: so the context with both is made here.
    """

    def __init__(self, loaded: LoadedEngine) -> None:
        self._path = loaded.path.with_suffix(".cache")
        self._config = loaded.engine.create_runtime_config()
        self._cache = self._config.create_runtime_cache()
        if self._path.is_file():
            self._cache.deserialize(self._path.read_bytes())
        self._config.set_runtime_cache(self._cache)
        graphs = member(
            loaded.trt, "CudaGraphStrategy", "WHOLE_GRAPH_CAPTURE", "CUDA graphs"
        )
        self._config.cuda_graph_strategy = graphs
        self.context = loaded.engine.create_execution_context(self._config)

    def save(self) -> None:
        """Write beside the engine what was compiled."""
        with written_beside(self._path) as partial:
            partial.write_bytes(bytes(self._cache.serialize()))


class TensorRtRunner(Runner):
    """An engine of TensorRT or of TensorRT for RTX that `build` wrote, with one profile for each batch size."""

    def __init__(self, engine: Path, onnx: Path, *, plugin: Path | None = None) -> None:
        """Store the arguments of `load_engine`; the engine is read when the runner is entered."""
        super().__init__(engine.name)
        self._engine = engine
        self._onnx = onnx
        self._plugin = plugin
        self._batch = 0
        self._loaded: LoadedEngine | None = None
        self._kernels: CompiledKernels | None = None
        self._polygraphy: Any = None
        self._error: type[Exception] = Exception

    def _activate(self) -> None:
        loaded = load_engine(self._engine, self._onnx, plugin=self._plugin)
        tool = loaded.manifest.settings.tool
        make, self._error = _import_polygraphy(tool)
        kernels = CompiledKernels(loaded) if tool.ahead else None
        with self._in_one_line(loaded):
            runner = make(
                loaded.engine if kernels is None else kernels.context, name=self.name
            )
            runner.activate()
        # Engines with details mark their layers for profilers, which costs time at each launch.
        runner.context.nvtx_verbosity = member(
            loaded.trt, "ProfilingVerbosity", "NONE", "timing"
        )
        self._loaded = loaded
        self._kernels = kernels
        self._polygraphy = runner
        self._batch = 0
        self._inputs, self._outputs = loaded.tensors("INPUT"), loaded.tensors("OUTPUT")

    def _deactivate(self) -> None:
        self._polygraphy.deactivate()
        if self._kernels is not None:
            self._kernels.save()
        self._loaded = self._kernels = self._polygraphy = None

    def _run(self, feed: Feed) -> dict[str, Array]:
        loaded = self._loaded
        batch = len(feed[IMAGES])
        assert loaded is not None
        profile = profile_for(loaded.manifest, batch, self.name)
        arrays = {name: np.ascontiguousarray(array) for name, array in feed.items()}
        with self._in_one_line(loaded):
            if batch != self._batch:
                self._polygraphy.set_profile(profile)
                self._batch = batch
            results = self._polygraphy.infer(arrays, check_inputs=False)
        # Copy the results: the next run writes into the same memory.
        return {name: np.array(value) for name, value in results.items()}

    @contextmanager
    def _in_one_line(self, loaded: LoadedEngine) -> Iterator[None]:
        """Turn Polygraphy's exception into a UserError with the cause from TensorRT's log."""
        loaded.log.clear()
        try:
            yield
        except self._error as error:
            reason = loaded.log.cause or str(error)
            raise UserError(self.name, reason, "an engine that runs here") from None
        except OSError as error:
            # Polygraphy does not look for libcudart where TensorRT's wheels have it.
            reason = reason_of(error)
            raise UserError(
                self.name, reason, "CUDA's runtime library", _CUDART
            ) from None


def _import_polygraphy(tool: Runtime) -> tuple[Any, type[Exception]]:
    """Import Polygraphy for one of the two tools: which of them it takes is settled for the whole process."""
    try:
        with warnings.catch_warnings():
            # its own, on Python 3.13
            warnings.simplefilter("ignore", DeprecationWarning)
            config: Any = importlib.import_module("polygraphy.config")
            config.USE_TENSORRT_RTX = tool.ahead
            backend, exception, logger = (
                importlib.import_module(f"polygraphy.{name}")
                for name in ("backend.trt", "exception", "logger")
            )
    except ImportError:
        raise MissingDependencyError("polygraphy", tool.name) from None
    # Silence its log: it goes to stdout, which is for results. Its errors are exceptions.
    logger.G_LOGGER.module_severity = logger.G_LOGGER.CRITICAL + 1
    return backend.TrtRunner, exception.PolygraphyException
