"""`Runner` for a TensorRT engine. It uses Polygraphy, which allocates outputs of data-dependent sizes."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from exporter.errors import MissingDependencyError, UserError
from exporter.runtimes.base import Feed, Runner, TensorInfo
from exporter.runtimes.tensorrt.loading import LoadedEngine, load_engine, without_nvtx
from exporter.runtimes.tensorrt.manifest import profile_for
from exporter.runtimes.tensorrt.tensorrt_api import major_version
from exporter.tensor_names import IMAGES

__all__ = ["TensorRtRunner"]


class TensorRtRunner(Runner):
    """An engine that `build` wrote, with one profile for each batch size."""

    def __init__(self, engine: Path, onnx: Path, *, plugin: Path | None = None, name: str = "") -> None:
        """Store the paths; the engine is read when the runner is entered.

        Args:
            engine: The engine file; its manifest is beside it.
            onnx: The ONNX file that it was built from.
            plugin: The CdfRetain library, for an engine that needs it and does not contain it.
            name: Name in errors and reports; by default the file's name.
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
        without_nvtx(loaded.trt, runner.context)
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
        # Copy the results: the next run writes into the same memory.
        copies = {name: np.array(value) for name, value in results.items()}
        return {name: _as(value, np.int32, np.int64) if narrow else value for name, value in copies.items()}

    def _active(self) -> LoadedEngine:
        if self._loaded is None:
            raise RuntimeError(f"{self.name} is not active: read it inside `with`")
        return self._loaded

    @contextmanager
    def _in_one_line(self, loaded: LoadedEngine) -> Iterator[None]:
        """Turn Polygraphy's exception into a UserError with the cause from TensorRT's log."""
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
    """Return whether the engine has int32 for the model's int64, as the parser of 8.6 supports only int32.

    The runner converts to the model's types, so that `check` compares equal types; indices fit in int32.
    """
    return major_version(loaded.manifest.built.tensorrt) < 9


def _as(array: np.ndarray[Any, Any], old: type[np.generic], new: type[np.generic]) -> np.ndarray[Any, Any]:
    return array.astype(new) if array.dtype == old else array


def _import_polygraphy() -> tuple[Any, type[Exception]]:
    """Return Polygraphy's runner class and its exception class."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # its own, on Python 3.13
            backend, exception, logger = (
                importlib.import_module(f"polygraphy.{name}")
                for name in ("backend.trt", "exception", "logger")
            )
    except ImportError:
        raise MissingDependencyError("polygraphy", "tensorrt") from None
    # Silence its log: it goes to stdout, which is for results. Its errors are exceptions.
    logger.G_LOGGER.module_severity = logger.G_LOGGER.CRITICAL + 1
    return backend.TrtRunner, exception.PolygraphyException
