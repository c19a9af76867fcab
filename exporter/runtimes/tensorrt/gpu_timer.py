"""Time an engine on the GPU with CUDA events around CUDA graph launches, and sample the GPU's clocks meanwhile.

Only this file imports cuda-bindings; its errors are one line. Clocks, power and temperature come from nvidia-smi:
read afterwards they are those of an idle GPU. Samples taken while it idles, between two runs, do not count.
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from exporter.errors import UserError, imported
from exporter.runtimes.tensorrt.manifest import profile_for
from exporter.runtimes.tensorrt.runner import LoadedEngine, without_nvtx
from exporter.tensor_names import Array


class Cuda:
    """Calls functions of the CUDA runtime by name, e.g. `cuda.call("cudaMalloc", 1024)`."""

    def __init__(self) -> None:
        """Import the CUDA runtime."""
        self.runtime = imported("cuda.bindings.runtime", "cuda-bindings", "tensorrt")

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function and return its first result after the status, or None if there is none."""
        status, *values = getattr(self.runtime, name)(*arguments)
        if status != self.runtime.cudaError_t.cudaSuccess:
            raise UserError(name, self._words(status), "a call that succeeds")
        return values[0] if values else None

    def _words(self, status: Any) -> str:
        _, text = self.runtime.cudaGetErrorString(status)
        return text.decode() if isinstance(text, bytes) else str(text)


@dataclass(frozen=True)
class RunTimes:
    """Times of each run of an engine, in milliseconds: copy to the GPU, compute, copy to the host."""

    copy_in_ms: tuple[float, ...]
    compute_ms: tuple[float, ...]
    copy_out_ms: tuple[float, ...]
    cuda_graph: bool


@dataclass(frozen=True)
class _Copy:
    """A tensor's buffers in pinned host memory and on the device, and their size in bytes."""

    host: Any
    device: Any
    size: int


class GpuTimer:
    """Times an engine at one batch size. Memory and CUDA graph exist while the timer is entered."""

    def __init__(
        self, loaded: LoadedEngine, feed: Mapping[str, Array], batch: int, cuda: Cuda
    ) -> None:
        """Store the engine, an array for each input, and their number of images; nothing is allocated yet."""
        self._loaded, self._feed, self._batch, self._cuda = loaded, feed, batch, cuda
        self._stack = ExitStack()
        self._stream: Any = None
        self._context: Any = None
        self._graph: Any = None
        self._in: tuple[_Copy, ...] = ()
        self._out: tuple[_Copy, ...] = ()

    def __enter__(self) -> "GpuTimer":
        with ExitStack() as stack:
            self._stack = stack
            self._stream = self._made("cudaStreamCreate", "cudaStreamDestroy")
            self._context = self._ready_context()
            self._in = tuple(self._input(each.name) for each in self._loaded.tensors("INPUT"))
            self._out = tuple(
                self._output(each.name) for each in self._loaded.tensors("OUTPUT")
            )
            self._copy(self._in, "cudaMemcpyHostToDevice")
            # The first run does one-time setup, which must not be part of the graph.
            self._need(self._enqueue(), "a first run")
            self._wait()
            self._graph = self._captured()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        self._context = self._graph = None

    def turn(self, runs: int) -> RunTimes:
        """Time `runs` runs, queued all at once: with a CUDA graph, the GPU never waits for Python."""
        cuda, marks = self._cuda, []
        with ExitStack() as stack:
            for _ in range(runs):
                events = [cuda.call("cudaEventCreate") for _ in range(4)]
                for event in events:
                    stack.callback(cuda.call, "cudaEventDestroy", event)
                marks.append(events)
            for before, copied, ran, done in marks:
                self._mark(before)
                self._copy(self._in, "cudaMemcpyHostToDevice")
                self._mark(copied)
                self._launch()
                self._mark(ran)
                self._copy(self._out, "cudaMemcpyDeviceToHost")
                self._mark(done)
            self._wait()
            copied_in, computed, copied_out = (
                tuple(
                    float(cuda.call("cudaEventElapsedTime", each[part], each[part + 1]))
                    for each in marks
                )
                for part in range(3)
            )
            return RunTimes(copied_in, computed, copied_out, self._graph is not None)

    def _ready_context(self) -> Any:
        context = self._loaded.engine.create_execution_context()
        self._need(context is not None, "a context")
        without_nvtx(self._loaded.trt, context)
        profile = profile_for(self._loaded.manifest, self._batch, self._loaded.name)
        self._need(
            context.set_optimization_profile_async(profile, int(self._stream)),
            f"profile {profile}",
        )
        self._wait()
        return context

    def _input(self, name: str) -> _Copy:
        array = np.ascontiguousarray(self._feed[name])
        self._need(
            self._context.set_input_shape(name, array.shape), f"{name} of {list(array.shape)}"
        )
        place = self._place(name, array.nbytes)
        ctypes.memmove(int(place.host), array.ctypes.data, array.nbytes)
        return place

    def _output(self, name: str) -> _Copy:
        """Allocate the largest possible output, because its size may depend on the data."""
        return self._place(name, self._context.get_max_output_size(name))

    def _place(self, name: str, size: int) -> _Copy:
        host = self._made("cudaMallocHost", "cudaFreeHost", size)
        device = self._made("cudaMalloc", "cudaFree", size)
        self._need(self._context.set_tensor_address(name, int(device)), f"a place for {name}")
        return _Copy(host, device, size)

    def _captured(self) -> Any:
        """Capture a run as a CUDA graph; None if the engine synchronises, e.g. for data-dependent shapes."""
        cuda, mode = (
            self._cuda,
            self._cuda.runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal,
        )
        cuda.call("cudaStreamBeginCapture", self._stream, mode)
        queued = self._enqueue()
        status, graph = cuda.runtime.cudaStreamEndCapture(self._stream)
        if not queued or status != cuda.runtime.cudaError_t.cudaSuccess:
            cuda.runtime.cudaGetLastError()  # clears the error
            return None
        try:
            return self._made("cudaGraphInstantiate", "cudaGraphExecDestroy", graph, 0)
        finally:
            cuda.call("cudaGraphDestroy", graph)

    def _launch(self) -> None:
        if self._graph is None:
            self._need(self._enqueue(), "a run")
        else:
            self._cuda.call("cudaGraphLaunch", self._graph, self._stream)

    def _enqueue(self) -> bool:
        return bool(self._context.execute_async_v3(int(self._stream)))

    def _copy(self, copies: tuple[_Copy, ...], direction: str) -> None:
        kind = getattr(self._cuda.runtime.cudaMemcpyKind, direction)
        for each in copies:
            ends = (
                (each.device, each.host)
                if direction.endswith("Device")
                else (each.host, each.device)
            )
            self._cuda.call("cudaMemcpyAsync", *ends, each.size, kind, self._stream)

    def _mark(self, event: Any) -> None:
        self._cuda.call("cudaEventRecord", event, self._stream)

    def _wait(self) -> None:
        self._cuda.call("cudaStreamSynchronize", self._stream)

    def _made(self, make: str, free: str, *arguments: Any) -> Any:
        """Create a CUDA object, and register the call that frees it on exit."""
        made = self._cuda.call(make, *arguments)
        self._stack.callback(self._cuda.call, free, made)
        return made

    def _need(self, done: object, what: str) -> None:
        if not done:
            raise UserError(
                self._loaded.name, self._loaded.log.cause or f"not {what}", f"{what} on the GPU"
            )


_FIELDS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "temperature.gpu")
# The field that tells why clocks are low, by its name since driver 535 and before.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_EVERY_MS = 100

# Bits of that field (nvml.h, nvmlClocksEventReason*).
_IDLE = 0x1
_SLOWED_BY = {
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True)
class Clocks:
    """The GPU during a measurement: medians over the samples taken while it was busy; None without any.

    `least_sm_mhz` is the lowest SM clock seen, `most_sm_mhz` the highest that the GPU has. `slowed_by` names what
    held clocks down in at least one sample.
    """

    samples: int
    sm_mhz: float | None = None
    least_sm_mhz: float | None = None
    most_sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    slowed_by: tuple[str, ...] = ()


NO_CLOCKS = Clocks(0)


def clocks_of(lines: Iterable[str]) -> Clocks:
    """Return the medians of the samples during which the GPU was busy."""
    rows = [row for row in map(_numbers, lines) if row and not int(row[-1]) & _IDLE]
    if not rows:
        return NO_CLOCKS
    table = np.array([row[:-1] for row in rows])
    sm, memory, most, power, temperature = np.median(table, axis=0).tolist()
    active = int(np.bitwise_or.reduce([int(row[-1]) for row in rows]))
    slowed = tuple(words for bit, words in _SLOWED_BY.items() if active & bit)
    return Clocks(
        len(rows), sm, float(table[:, 0].min()), most, memory, power, temperature, slowed
    )


@contextmanager
def sampled_clocks(gpu: str) -> Iterator[list[str]]:
    """Sample a GPU every tenth of a second inside the `with` block; its lines, for `clocks_of`, are there after it.

    `gpu` is its UUID, which unlike an index does not depend on CUDA_VISIBLE_DEVICES; "" for none: no samples.
    """
    samples, reasons = list[str](), _reasons_of(gpu)
    if not reasons:
        yield samples
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.csv"
        with path.open("w", encoding="utf-8") as file:
            command = [*_query(gpu, (*_FIELDS, reasons)), f"--loop-ms={_EVERY_MS}"]
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
            try:
                yield samples
            finally:
                process.terminate()
                process.wait()
        samples += path.read_text(encoding="utf-8").splitlines()


def _query(gpu: str, fields: Sequence[str]) -> list[str]:
    return [
        "nvidia-smi",
        f"--id={gpu}",
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
    ]


def _reasons_of(gpu: str) -> str:
    """Return the name under which nvidia-smi knows the reasons; "" without nvidia-smi or this GPU."""
    if not gpu or shutil.which("nvidia-smi") is None:
        return ""
    for name in _REASONS:
        done = subprocess.run(_query(gpu, [name]), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return name
    return ""


def _numbers(line: str) -> tuple[float, ...]:
    """Return a line's numbers, the reasons last; () for a line that is cut off or lacks a value."""
    *values, reasons = (word.strip() for word in line.split(","))
    try:
        numbers = (*map(float, values), float(int(reasons, 16)))
    except ValueError:
        return ()
    return numbers if len(numbers) == len(_FIELDS) + 1 else ()
