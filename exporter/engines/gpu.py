"""The GPU that is here, by CUDA's driver, and its clocks while engines are timed, by nvidia-smi.

Clocks, power and temperature that are read afterwards are those of an idle GPU. Samples taken while it idles,
between two runs, do not count.
"""

import ctypes
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.core.base.errors import UserError
from exporter.engines.manifest import Built

# Constants of the CUDA driver API (cuda.h), which is stable.
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NAME_BYTES = 256
_UUID_BYTES = 16
_NO_GPU = "a GPU with NVIDIA's driver"


def this_machine(tensorrt: str) -> Built:
    """Describe the first GPU by CUDA's driver, which needs no other CUDA library; `tensorrt` is its version.

    TensorRT is not queried: without a GPU, creating its first object ends the process.
    """
    cuda, handle = _first_gpu()
    version, part = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    cuda.cuDeviceGetName(name, _NAME_BYTES, handle)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    parts = []
    for attribute in (_MAJOR, _MINOR):
        cuda.cuDeviceGetAttribute(ctypes.byref(part), attribute, handle)
        parts.append(str(part.value))
    number = f"{version.value // 1000}.{version.value % 1000 // 10}"
    gpu = name.value.decode()
    return Built(tensorrt, number, _driver_version(), gpu, ".".join(parts))


def gpu_uuid() -> str:
    """Return the UUID of the first GPU that CUDA_VISIBLE_DEVICES leaves, "GPU-…" as in nvidia-smi; "" without."""
    try:
        cuda, handle = _first_gpu()
    except UserError:
        return ""
    number = ctypes.create_string_buffer(_UUID_BYTES)
    if cuda.cuDeviceGetUuid_v2(number, handle):
        return ""
    return f"GPU-{uuid.UUID(bytes=number.raw)}"


def _first_gpu() -> tuple[Any, ctypes.c_int]:
    """Return CUDA's driver, and its handle of the first GPU; UserError without one."""
    cuda, handle = _driver(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(handle), 0):
        raise UserError("GPU", "a driver without GPU 0", _NO_GPU)
    return cuda, handle


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


# The last one tells why clocks are low.
_FIELDS = (
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "power.draw",
    "temperature.gpu",
    "clocks_event_reasons.active",
)
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
        len(rows),
        sm,
        float(table[:, 0].min()),
        most,
        memory,
        power,
        temperature,
        slowed,
    )


@contextmanager
def sampled_clocks(gpu: str) -> Iterator[list[str]]:
    """Sample a GPU every tenth of a second inside the `with` block; its lines, for `clocks_of`, are there after it.

    `gpu` is its UUID, which unlike an index does not depend on CUDA_VISIBLE_DEVICES; "" for none: no samples.
    """
    samples = list[str]()
    if not gpu or shutil.which("nvidia-smi") is None:
        yield samples
        return
    command = [
        "nvidia-smi",
        f"--id={gpu}",
        f"--query-gpu={','.join(_FIELDS)}",
        "--format=csv,noheader,nounits",
        f"--loop-ms={_EVERY_MS}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.csv"
        with path.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
            try:
                yield samples
            finally:
                process.terminate()
                process.wait()
        samples += path.read_text(encoding="utf-8").splitlines()


def _numbers(line: str) -> tuple[float, ...]:
    """Return a line's numbers, the reasons last; () for an error, and a line that is cut off or lacks a value."""
    *values, reasons = (word.strip() for word in line.split(","))
    try:
        numbers = (*map(float, values), float(int(reasons, 16)))
    except ValueError:
        return ()
    return numbers if len(numbers) == len(_FIELDS) else ()
