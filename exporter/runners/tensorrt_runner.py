"""A TensorRT engine behind the `Runner` interface, through Polygraphy, which sizes outputs that follow the data."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from exporter.engines.library import import_tensorrt
from exporter.engines.machine import this_machine
from exporter.engines.manifest import check_manifest
from exporter.engines.plugin_library import checked_library
from exporter.errors import ArtefactError, MissingDependencyError, UserError
from exporter.runners.base import Feed, Runner, TensorInfo
from exporter.tensor_names import IMAGES

__all__ = ["TensorRtRunner"]


class TensorRtRunner(Runner):
    """An engine that `build` left. Each batch size it was built for has a profile of its own."""

    def __init__(self, engine: Path, onnx: Path, *, plugin: Path | None = None, name: str = "") -> None:
        """Name the engine; it is read when the runner is entered.

        Args:
            engine: The engine, its manifest beside it.
            onnx: The file it was built of.
            plugin: The CdfRetain library, for an engine that needs it and does not carry it.
            name: What errors and reports call it; the file's name where it is empty.
        """
        super().__init__(name or engine.name)
        self._engine, self._onnx, self._plugin = engine, onnx, plugin
        self._batches: tuple[int, ...] = ()
        self._batch, self._any_batch = 0, False
        self._inputs: tuple[TensorInfo, ...] = ()
        self._outputs: tuple[TensorInfo, ...] = ()
        self._polygraphy: Any = None

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """As the engine declares them."""
        return self._known(self._inputs)

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """As the engine declares them; a size that follows the data has no name."""
        return self._known(self._outputs)

    def _activate(self) -> None:
        trt = import_tensorrt()
        backend, common = _import_polygraphy()
        plugin = None if self._plugin is None else checked_library(self._plugin, trt.__version__)
        manifest = check_manifest(self._engine, self._onnx, this_machine(trt.__version__), plugin)
        if manifest.plugin_sha256 and not manifest.plugin_serialised:
            if plugin is None:
                raise ArtefactError(self.name, "no plugin", "the CdfRetain library", "--plugin FILE")
            trt.get_plugin_registry().load_library(str(plugin))
        runtime = trt.Runtime(backend.get_trt_logger())
        # An engine that carries a plugin or a runtime carries code; its checksum is the manifest's.
        runtime.engine_host_code_allowed = manifest.plugin_serialised or manifest.version_compatible
        engine = backend.EngineFromBytes(common.BytesFromPath(str(self._engine)), runtime=runtime)()
        runner = backend.TrtRunner(engine, name=self.name)
        runner.activate()
        self._polygraphy, self._batch = runner, 0
        self._batches, self._any_batch = manifest.batches, manifest.any_batch
        self._inputs, self._outputs = (_infos(trt, runner.engine, mode) for mode in ("INPUT", "OUTPUT"))

    def _deactivate(self) -> None:
        self._polygraphy.deactivate()
        self._polygraphy = None

    def _run(self, feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        batch = len(feed[IMAGES])
        if batch != self._batch:
            self._polygraphy.set_profile(self._profile(batch))
            self._batch = batch
        arrays = {name: np.ascontiguousarray(array) for name, array in feed.items()}
        results = self._polygraphy.infer(arrays, check_inputs=False)
        # The next run writes into the same memory.
        return {name: np.array(value) for name, value in results.items()}

    def _profile(self, batch: int) -> int:
        """The number of the profile that takes a batch."""
        fitting = [size for size in self._batches if size == batch or (self._any_batch and size > batch)]
        if not fitting:
            built = ", ".join(map(str, self._batches))
            raise UserError(f"{self.name}: batch", str(batch), f"one of {built}", f"build --batches {batch}")
        return self._batches.index(fitting[0])

    def _known(self, infos: tuple[TensorInfo, ...]) -> tuple[TensorInfo, ...]:
        if self._polygraphy is None:
            raise RuntimeError(f"{self.name} is not active: read it inside `with`")
        return infos


def _infos(trt: Any, engine: Any, mode: str) -> tuple[TensorInfo, ...]:
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    wanted = getattr(trt.TensorIOMode, mode)
    return tuple(_info(trt, engine, name) for name in names if engine.get_tensor_mode(name) == wanted)


def _info(trt: Any, engine: Any, name: str) -> TensorInfo:
    sizes: tuple[int | str, ...] = tuple(
        size if size >= 0 else "batch" if axis == 0 else ""
        for axis, size in enumerate(engine.get_tensor_shape(name))
    )
    return TensorInfo(name, sizes, np.dtype(trt.nptype(engine.get_tensor_dtype(name))).name)


def _import_polygraphy() -> tuple[Any, Any]:
    try:
        return importlib.import_module("polygraphy.backend.trt"), importlib.import_module(
            "polygraphy.backend.common"
        )
    except ImportError:
        raise MissingDependencyError("polygraphy", "tensorrt") from None
