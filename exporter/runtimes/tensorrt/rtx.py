"""TensorRT for RTX: build engines for GPUs that need not be here, and run them on one that is.

It parses ONNX and builds ahead of time with neither GPU nor driver, for any of `COMPUTE_CAPABILITIES`; an engine is
compiled to the end where it first runs, and a runtime cache keeps what was compiled. Its Python API takes no
plugins. Its versions are its own: 1.7 is no TensorRT before 8. What runs an engine is unverified until it is run.
"""

import ctypes
import importlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from exporter.errors import ArtefactError, MissingDependencyError, UserError
from exporter.files import written_beside
from exporter.runtimes.base import Feed, Runner, TensorInfo
from exporter.runtimes.tensorrt.builder import NO_WIDTHS, configure, parse, profile_of
from exporter.runtimes.tensorrt.gpu_timer import Cuda
from exporter.runtimes.tensorrt.manifest import EngineManifest, check_manifest, engine_path, profile_for
from exporter.runtimes.tensorrt.runner import this_machine
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import error_log, started
from exporter.tensor_names import IMAGES

__all__ = ["RtxRunner", "build_ahead", "import_rtx"]

# Warnings of the parser after which the engine computes something else than the file.
_WRONG = ("precision-lose casting", "Unused Input", "already exists")


def import_rtx() -> Any:
    """Import the module `tensorrt_rtx`.

    Raises:
        UserError: It is not installed, or its library does not load.
    """
    try:
        return importlib.import_module("tensorrt_rtx")
    except ModuleNotFoundError:
        raise MissingDependencyError("tensorrt_rtx", "tensorrt-rtx") from None
    except ImportError as error:
        raise UserError("tensorrt_rtx", str(error), "a library that loads") from None


def build_ahead(
    rtx: Any, onnx: Path, sm: int, settings: BuildSettings, widths: Mapping[str, int] = NO_WIDTHS
) -> bytes:
    """Build an engine for a compute capability, and return it serialised.

    Args:
        rtx: The module `tensorrt_rtx`.
        onnx: The ONNX file; initializers may be in other files of its folder.
        sm: One of COMPUTE_CAPABILITIES, 80 for 8.0.
        settings: Batches, memory, TF32.
        widths: The largest size, by input name, of dynamic dimensions other than the batch.

    Raises:
        ArtefactError: The parser or the builder rejects the model, or does not take it as it is; quotes it.
    """
    log = error_log(rtx, also=_WRONG)
    builder = started(rtx, "Builder", log)
    network = builder.create_network(0)
    parse(rtx, network, log, onnx)
    if log.cause:
        raise ArtefactError(str(onnx), log.cause, "a model that its parser takes as it is")
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(rtx.ComputeCapability, f"SM{sm}"), 0)
    configure(rtx, config, settings)
    for batches in settings.profiles:
        config.add_optimization_profile(profile_of(builder, network, batches, widths))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ArtefactError(str(onnx), log.cause or "no reason", "a model that TensorRT for RTX can build")
    return bytes(plan)


class RtxRunner(Runner):
    """The engine of this GPU's compute capability, among those that `build --runtime tensorrt-rtx` wrote."""

    def __init__(self, folder: Path, onnx: Path, *, name: str = "") -> None:
        """Store the paths; the engine is read when the runner is entered.

        Args:
            folder: The folder of the engines and their manifests.
            onnx: The ONNX file that they were built from.
            name: Name in errors and reports; by default the engine's.
        """
        super().__init__(name or onnx.stem)
        self._folder, self._onnx = folder, onnx
        self._stack = ExitStack()
        self._parts: tuple[Any, Any, Any, EngineManifest, Cuda] | None = None

    def _activate(self) -> None:
        rtx = import_rtx()
        here = this_machine(rtx.__version__)
        path = engine_path(self._folder, self._onnx, sm=int(here.sm.replace(".", "")))
        manifest = check_manifest(path, self._onnx, here)
        log = error_log(rtx)
        engine = started(rtx, "Runtime", log).deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise ArtefactError(str(path), log.cause or "no reason", "an engine that loads here")
        config = engine.create_runtime_config()
        cache, kept = config.create_runtime_cache(), path.with_suffix(".cache")
        if kept.is_file():
            cache.deserialize(kept.read_bytes())
        config.set_runtime_cache(cache)
        context = engine.create_execution_context(config)
        if context is None:
            raise ArtefactError(str(path), log.cause or "no reason", "an engine that runs here")
        self._stack.callback(_keep_cache, cache, kept)
        self._parts = (rtx, engine, context, manifest, Cuda())
        self._inputs, self._outputs = (_infos(rtx, engine, mode) for mode in ("INPUT", "OUTPUT"))

    def _deactivate(self) -> None:
        self._stack.close()
        self._parts = None

    def _run(self, feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        if self._parts is None:
            raise RuntimeError(f"{self.name} is not active: read it inside `with`")
        _, _, context, manifest, cuda = self._parts
        profile = profile_for(manifest, len(feed[IMAGES]), self.name)
        with ExitStack() as stack:
            stream = cuda.call("cudaStreamCreate")
            stack.callback(cuda.call, "cudaStreamDestroy", stream)
            if not context.set_optimization_profile_async(profile, int(stream)):
                raise UserError(self.name, f"not profile {profile}", "an engine that runs here")
            for name, array in feed.items():
                context.set_input_shape(name, array.shape)
                context.set_tensor_address(name, _on_device(cuda, stack, np.ascontiguousarray(array)))
            places = {}
            for info in self._outputs:
                result = np.empty(tuple(context.get_tensor_shape(info.name)), info.dtype)
                places[info.name] = (_on_device(cuda, stack, result), result)
                context.set_tensor_address(info.name, places[info.name][0])
            if not context.execute_async_v3(int(stream)):
                raise UserError(self.name, "no run", "an engine that runs here")
            cuda.call("cudaStreamSynchronize", stream)
            back = cuda.runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
            for device, result in places.values():
                cuda.call("cudaMemcpy", result.ctypes.data, device, result.nbytes, back)
        return {name: result for name, (_, result) in places.items()}


def _keep_cache(cache: Any, path: Path) -> None:
    with written_beside(path) as partial:
        partial.write_bytes(bytes(cache.serialize()))


def _on_device(cuda: Cuda, stack: ExitStack, array: np.ndarray[Any, Any]) -> int:
    """Copy an array to the device; return the address, valid while the stack is open."""
    device = cuda.call("cudaMalloc", max(array.nbytes, 1))
    stack.callback(cuda.call, "cudaFree", device)
    kind = cuda.runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
    cuda.call("cudaMemcpy", device, ctypes.c_void_p(array.ctypes.data).value, array.nbytes, kind)
    return int(device)


def _infos(rtx: Any, engine: Any, mode: str) -> tuple[TensorInfo, ...]:
    names = (engine.get_tensor_name(index) for index in range(engine.num_io_tensors))
    wanted = getattr(rtx.TensorIOMode, mode)
    return tuple(_info(rtx, engine, name) for name in names if engine.get_tensor_mode(name) == wanted)


def _info(rtx: Any, engine: Any, name: str) -> TensorInfo:
    shape: tuple[int | str, ...] = tuple(
        size if size >= 0 else "batch" if axis == 0 else ""
        for axis, size in enumerate(engine.get_tensor_shape(name))
    )
    return TensorInfo(name, shape, np.dtype(rtx.nptype(engine.get_tensor_dtype(name))).name)
