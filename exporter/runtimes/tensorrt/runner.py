"""A TensorRT engine behind the `Runner` interface, through Polygraphy, which sizes outputs that follow the data."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from exporter.errors import MissingDependencyError, UserError
from exporter.runtimes.base import Feed, Runner, TensorInfo
from exporter.runtimes.tensorrt.loading import LoadedEngine, load_engine
from exporter.runtimes.tensorrt.manifest import profile_for
from exporter.runtimes.tensorrt.tensorrt_api import major_version
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
        self._batch = 0
        self._loaded: LoadedEngine | None = None
        self._polygraphy: Any = None
        self._error: type[Exception] = Exception

    def _activate(self) -> None:
        make, self._error = _import_polygraphy()
        loaded = load_engine(self._engine, self._onnx, plugin=self._plugin, name=self.name)
        with self._in_one_line(loaded):
            runner = make(loaded.engine, name=self.name)
            runner.activate()
        self._loaded, self._polygraphy, self._batch = loaded, runner, 0
        self._inputs, self._outputs = (_infos(loaded, mode) for mode in ("INPUT", "OUTPUT"))

    def _deactivate(self) -> None:
        self._polygraphy.deactivate()
        self._loaded = self._polygraphy = None

    def _run(self, feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        loaded, batch = self._active(), len(feed[IMAGES])
        profile = profile_for(loaded.manifest, batch, self.name)
        narrow = _narrows(loaded)
        arrays = {name: _as(array, np.int64, np.int32) if narrow else array for name, array in feed.items()}
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        with self._in_one_line(loaded):
            if batch != self._batch:
                self._polygraphy.set_profile(profile)
                self._batch = batch
            results = self._polygraphy.infer(arrays, check_inputs=False)
        # The next run writes into the same memory.
        copies = {name: np.array(value) for name, value in results.items()}
        return {name: _as(value, np.int32, np.int64) if narrow else value for name, value in copies.items()}

    def _active(self) -> LoadedEngine:
        if self._loaded is None:
            raise RuntimeError(f"{self.name} is not active: read it inside `with`")
        return self._loaded

    @contextmanager
    def _in_one_line(self, loaded: LoadedEngine) -> Iterator[None]:
        """Polygraphy's exception says where to look, TensorRT's log what there was to see."""
        try:
            yield
        except self._error as error:
            raise UserError(self.name, loaded.log.last or str(error), "an engine that runs here") from None


def _infos(loaded: LoadedEngine, mode: str) -> tuple[TensorInfo, ...]:
    return tuple(_info(loaded, name) for name in loaded.tensors(mode))


def _info(loaded: LoadedEngine, name: str) -> TensorInfo:
    engine = loaded.engine
    sizes: tuple[int | str, ...] = tuple(
        size if size >= 0 else "batch" if axis == 0 else ""
        for axis, size in enumerate(engine.get_tensor_shape(name))
    )
    dtype = np.dtype(loaded.trt.nptype(engine.get_tensor_dtype(name))).name
    return TensorInfo(name, sizes, "int64" if dtype == "int32" and _narrows(loaded) else dtype)


def _narrows(loaded: LoadedEngine) -> bool:
    """Whether the engine has int32 where the model has int64: the parser of 8.6 knows no other integers.

    The runner shows the model's own types, so that `check` compares like with like; indices fit either.
    """
    return major_version(loaded.manifest.built.tensorrt) < 9


def _as(array: np.ndarray[Any, Any], old: type[np.generic], new: type[np.generic]) -> np.ndarray[Any, Any]:
    return array.astype(new) if array.dtype == old else array


def _import_polygraphy() -> tuple[Any, type[Exception]]:
    """Its class of runners, and what it raises."""
    try:
        backend, exception, logger = (
            importlib.import_module(f"polygraphy.{name}") for name in ("backend.trt", "exception", "logger")
        )
    except ImportError:
        raise MissingDependencyError("polygraphy", "tensorrt") from None
    # It logs to stdout, which is for results; what is wrong, it raises.
    logger.G_LOGGER.module_severity = logger.G_LOGGER.CRITICAL + 1
    return backend.TrtRunner, exception.PolygraphyException
