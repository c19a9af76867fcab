"""`Runner` for an engine, loaded after its manifest was compared with this machine."""

from pathlib import Path
from typing import Any

import numpy as np

from exporter.core.base.errors import ArtefactError
from exporter.core.base.files import written_beside
from exporter.core.base.targets import Runtime
from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.verify.runner import Feed, Runner, TensorInfo
from exporter.engines.gpu import this_machine
from exporter.engines.manifest import (
    ENGINES,
    EngineManifest,
    check_manifest,
    engine_path,
    profile_for,
    read_manifest,
)
from exporter.engines.plugin_library import checked_library, register_library
from exporter.engines.tool import Tool, tool_of


def engine_here(onnx: Path, tool: Runtime, batch: int = 0) -> Path:
    """Return the path of an ONNX file's engine for this machine, by the tool that built it; see `engine_path`."""
    sm = int(this_machine("").sm.replace(".", "")) if tool.ahead else 0
    return engine_path(onnx.parent / ENGINES, onnx, batch, sm)


def load_engine(
    path: Path, onnx: Path, plugin: Path | None = None
) -> tuple[Tool, Any, EngineManifest]:
    """Load an engine that `build` wrote of an ONNX file; its manifest is beside it.

    `plugin` is the CdfRetain library, for an engine that needs it and does not contain it.
    """
    tool = tool_of(read_manifest(path).settings.tool)
    library = None if plugin is None else checked_library(plugin, tool.version)
    manifest = check_manifest(path, onnx, this_machine(tool.version), library)
    if manifest.needs_plugin and library is None:
        expected = "the CdfRetain library"
        raise ArtefactError(path.name, "no plugin", expected, "--plugin FILE")
    expected = f"an engine that {tool.runtime.title} loads"
    with tool.in_one_line(path, expected, "star-export build"):
        if manifest.needs_plugin and library is not None:
            register_library(tool.trt.get_plugin_registry(), library)
        # Code in it may run: a version-compatible engine has some, and its checksum is the manifest's.
        engine = tool.polygraphy.engine_from_bytes(path.read_bytes())
    return tool, engine, manifest


class CompiledKernels:
    """The runtime cache of TensorRT for RTX, which compiles an engine to the end where it first runs.

    Polygraphy makes no such cache, and launches kernels one by one: so the context with both is made here.
    """

    def __init__(self, path: Path, tool: Tool, engine: Any) -> None:
        self._path = path.with_suffix(".cache")
        config = engine.create_runtime_config()
        self._cache = config.create_runtime_cache()
        if self._path.is_file():
            self._cache.deserialize(self._path.read_bytes())
        config.set_runtime_cache(self._cache)
        config.cuda_graph_strategy = tool.trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        self.context = engine.create_execution_context(config)

    def save(self) -> None:
        """Write beside the engine what was compiled."""
        with written_beside(self._path) as partial:
            partial.write_bytes(bytes(self._cache.serialize()))


class TensorRtRunner(Runner):
    """An engine that `build` wrote, with one profile for each batch size; Polygraphy runs it.

    That keeps buffers between runs and allocates outputs of data-dependent sizes.
    """

    def __init__(self, engine: Path, onnx: Path, *, plugin: Path | None = None) -> None:
        """Store the arguments of `load_engine`; the engine is read when the runner is entered."""
        super().__init__(engine.name)
        self._engine = engine
        self._onnx = onnx
        self._plugin = plugin
        self._batch = 0
        self._kernels: CompiledKernels | None = None
        self._tool: Any = None
        self._manifest: Any = None
        self._polygraphy: Any = None

    def _activate(self) -> None:
        tool, engine, manifest = load_engine(self._engine, self._onnx, self._plugin)
        with tool.in_one_line(self.name, "an engine that runs here"):
            if tool.runtime.ahead:
                self._kernels = CompiledKernels(self._engine, tool, engine)
            context = engine if self._kernels is None else self._kernels.context
            runner = tool.polygraphy.TrtRunner(context, name=self.name)
            runner.activate()
        # Engines with details mark their layers for profilers, which costs time at each launch.
        runner.context.nvtx_verbosity = tool.trt.ProfilingVerbosity.NONE
        self._tool, self._manifest, self._polygraphy = tool, manifest, runner
        self._batch = 0
        modes = tool.trt.TensorIOMode
        self._inputs = _tensors(tool.trt, engine, modes.INPUT)
        self._outputs = _tensors(tool.trt, engine, modes.OUTPUT)

    def _deactivate(self) -> None:
        self._polygraphy.deactivate()
        if self._kernels is not None:
            self._kernels.save()
        self._kernels = self._polygraphy = None

    def _run(self, feed: Feed) -> dict[str, Array]:
        batch = len(feed[IMAGES])
        profile = profile_for(self._manifest, batch, self.name)
        arrays = {name: np.ascontiguousarray(array) for name, array in feed.items()}
        with self._tool.in_one_line(self.name, "an engine that runs here"):
            if batch != self._batch:
                self._polygraphy.set_profile(profile)
                self._batch = batch
            results = self._polygraphy.infer(arrays, check_inputs=False)
        # Copy the results: the next run writes into the same memory.
        return {name: np.array(value) for name, value in results.items()}


def _tensors(trt: Any, engine: Any, mode: Any) -> tuple[TensorInfo, ...]:
    """Return the inputs or the outputs of an engine, in its order."""
    infos = []
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    for name in names:
        if engine.get_tensor_mode(name) != mode:
            continue
        first, *rest = engine.get_tensor_shape(name)
        sizes = ("batch" if first < 0 else first, *("" if n < 0 else n for n in rest))
        dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(name)))
        infos.append(TensorInfo(name, sizes, dtype.name))
    return tuple(infos)
