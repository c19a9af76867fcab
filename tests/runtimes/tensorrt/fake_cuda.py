"""As much of cuda-bindings' `cuda.bindings.runtime` as is called, on a clock, and an engine that runs on it.

Every function gives a tuple whose first part is the status, as the real ones of 13.4 do; a copy takes a millisecond
to the GPU and half of one back. What was made and not freed is in `alive`.
"""

import ctypes
import sys
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from exporter.runtimes.tensorrt.builder import save_engine
from exporter.runtimes.tensorrt.manifest import Built, EngineManifest, manifest_of
from exporter.runtimes.tensorrt.runner import LoadedEngine
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.settings.fields import fields_of
from tests.runtimes.tensorrt.fake_tensorrt import IO_MODES

BUILT = Built("11.4.0", "13.0", "580", "GPU", "9.0")


class Status(IntEnum):
    cudaSuccess = 0  # noqa: N815  (the real names)
    cudaErrorMemoryAllocation = 2  # noqa: N815
    cudaErrorStreamCaptureInvalidated = 901  # noqa: N815


OK = Status.cudaSuccess


def freeing(kind: str) -> Callable[["FakeCuda", Any], Any]:
    """A function that frees what was made of a kind."""
    return lambda cuda, _what: cuda._freed(kind)


class FakeCuda:
    cudaStreamDestroy, cudaFree, cudaEventDestroy = map(freeing, ("stream", "device", "event"))  # noqa: N815
    cudaGraphDestroy, cudaGraphExecDestroy = map(freeing, ("graph", "executable"))  # noqa: N815
    cudaError_t = Status  # noqa: N815
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)  # noqa: N815
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)  # noqa: N815

    def __init__(self, memory: int = 1 << 20) -> None:
        self.now_ms, self.memory = 0.0, memory
        self.alive: list[str] = []
        self.graph: list[float] | None = None
        self.launches = 0
        self._host: dict[int, Any] = {}

    def installed(self, monkeypatch: pytest.MonkeyPatch) -> "FakeCuda":
        """In the place of cuda-bindings."""
        for name in ("cuda", "cuda.bindings"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", self)
        return self

    def cudaStreamCreate(self) -> Any:  # noqa: N802
        return OK, self._made("stream", 7)

    def cudaStreamSynchronize(self, stream: int) -> Any:  # noqa: N802
        return (OK,)

    def cudaMalloc(self, size: int) -> Any:  # noqa: N802
        if size > self.memory:
            return Status.cudaErrorMemoryAllocation, None
        return OK, self._made("device", 4096)

    def cudaMallocHost(self, size: int) -> Any:  # noqa: N802
        buffer = ctypes.create_string_buffer(size)
        self._host[ctypes.addressof(buffer)] = buffer
        return OK, self._made("host", ctypes.addressof(buffer))

    def cudaFreeHost(self, pointer: int) -> Any:  # noqa: N802
        del self._host[pointer]
        return self._freed("host")

    def cudaMemcpyAsync(self, to: int, source: int, size: int, kind: int, stream: int) -> Any:  # noqa: N802
        assert (source if kind == 1 else to) in self._host
        self.now_ms += {1: 1.0, 2: 0.5}[kind]
        return (OK,)

    def cudaEventCreate(self) -> Any:  # noqa: N802
        return OK, SimpleNamespace(at_ms=self._made("event", None))

    def cudaEventRecord(self, event: Any, stream: int) -> Any:  # noqa: N802
        event.at_ms = self.now_ms
        return (OK,)

    def cudaEventElapsedTime(self, start: Any, end: Any) -> Any:  # noqa: N802
        return OK, end.at_ms - start.at_ms

    def cudaStreamBeginCapture(self, stream: int, mode: int) -> Any:  # noqa: N802
        self.graph = []
        return (OK,)

    def cudaStreamEndCapture(self, stream: int) -> Any:  # noqa: N802
        graph, self.graph = self.graph, None
        if not graph:
            return Status.cudaErrorStreamCaptureInvalidated, None
        self._made("graph", None)
        return OK, graph

    def cudaGraphInstantiate(self, graph: list[float], flags: int) -> Any:  # noqa: N802
        self._made("executable", None)
        return OK, graph

    def cudaGraphLaunch(self, graph: list[float], stream: int) -> Any:  # noqa: N802
        self.launches += 1
        self.now_ms += sum(graph)
        return (OK,)

    def cudaGetLastError(self) -> Any:  # noqa: N802
        return (OK,)

    def cudaGetErrorString(self, status: Status) -> Any:  # noqa: N802
        return OK, status.name.encode()

    def _made(self, kind: str, what: Any) -> Any:
        self.alive.append(kind)
        return what

    def _freed(self, kind: str) -> Any:
        self.alive.remove(kind)
        return (OK,)


class FakeEngine:
    """Images in, logits out, as TensorRT's ICudaEngine and its one context; a run takes `times_ms` in turn.

    With `waits` it asks the GPU for a size on its way, which no capture allows.
    """

    shapes: ClassVar[dict[str, tuple[int, ...]]] = {"images": (-1, 3, 2, 2), "logits": (-1, 2)}
    nvtx_verbosity = "detailed"  # of an engine that can be audited

    def __init__(
        self, cuda: FakeCuda, times_ms: Iterable[float], *, waits: bool = False
    ) -> None:
        self.cuda, self.times_ms, self.waits = cuda, iter(times_ms), waits
        self.profiles: list[int] = []
        self.addresses: dict[str, int] = {}

    @property
    def num_io_tensors(self) -> int:
        return len(self.shapes)

    def get_tensor_name(self, index: int) -> str:
        return list(self.shapes)[index]

    def get_tensor_mode(self, name: str) -> str:
        return "OUT" if name == "logits" else "IN"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[name]

    def get_tensor_dtype(self, name: str) -> type:
        return np.float32

    def create_execution_context(self) -> "FakeEngine":
        return self

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self.profiles.append(profile_index)
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        return len(shape) == 4

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self.addresses[name] = memory
        return True

    def get_max_output_size(self, name: str) -> int:
        return 64

    def execute_async_v3(self, stream_handle: int) -> bool:
        time_ms = next(self.times_ms)
        if self.cuda.graph is None:
            self.cuda.now_ms += time_ms
        elif self.waits:
            return False
        else:
            self.cuda.graph.append(time_ms)
        return True


def manifest(**different: Any) -> EngineManifest:
    """An engine of batches 1 and 8 without anything special; settings of its build may differ too."""
    sums = ("engine_sha256", "onnx", "onnx_sha256", "schedule_sha256", "plugin_sha256")
    own = {name: different.pop(name) for name in fields_of(BuildSettings) if name in different}
    settings = BuildSettings(**{"batches": (1, 8), **own})
    return EngineManifest(
        **{**dict.fromkeys(sums, ""), "settings": settings, "built": BUILT, **different}
    )


def saved_engine(folder: Path, **different: Any) -> tuple[Path, Path]:
    """An engine, which has its manifest beside it, and the model that it was built of."""
    engine, onnx = folder / "m.engine", folder / "m.onnx"
    onnx.write_bytes(b"model")
    made = manifest_of(b"plan", onnx, BuildSettings(), BUILT)
    sums = {name: getattr(made, name) for name in ("engine_sha256", "onnx_sha256", "onnx")}
    save_engine(engine, b"plan", manifest(**{**sums, **different}))
    return engine, onnx


def everything(folder: Path) -> BuildSettings:
    """All that can be asked for, but the compatibility with other hardware."""
    return BuildSettings(
        version_compatible=True,
        tf32=True,
        plugin=folder / "lib.so",
        serialise_plugin=True,
        optimization_level=5,
        aux_streams=0,
    )


def loaded_engine(engine: Any, **different: Any) -> LoadedEngine:
    """As `load_engine` gives it."""
    trt = SimpleNamespace(
        TensorIOMode=IO_MODES,
        ProfilingVerbosity=SimpleNamespace(NONE="none"),
        nptype=lambda dtype: dtype,
    )
    return LoadedEngine(
        "m.engine",
        trt,
        engine,
        SimpleNamespace(cause="", clear=lambda: None),
        manifest(**different),
    )
