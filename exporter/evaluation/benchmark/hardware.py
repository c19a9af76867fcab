"""Describe the machine of a measurement: CPU model, usable CPUs, versions of the loaded runtimes."""

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Hardware", "environment"]


@dataclass(frozen=True)
class Hardware:
    """The machine of a measurement. `threads` is the runners' setting; None or 0 is the runtime's default.

    `cpus` are the indices of the CPUs that the process may use, empty if the system does not report them.
    """

    cpu_model: str
    usable_cpus: int
    threads: int | None
    system: str
    versions: dict[str, str]
    cpus: tuple[int, ...] = ()


def environment(threads: int | None = None) -> Hardware:
    """Describe this machine, and the versions of NumPy and of the loaded runtimes."""
    loaded = {
        name: sys.modules.get(name) for name in ("numpy", "onnxruntime", "openvino", "tensorrt", "torch")
    }
    versions = {name: str(module.__version__) for name, module in loaded.items() if module}
    cpus = _affinity()
    return Hardware(
        cpu_model=_cpu_model(Path("/proc/cpuinfo")),
        usable_cpus=len(cpus) or os.cpu_count() or 1,
        threads=threads,
        system=f"{platform.system()} {platform.machine()}",
        versions={"python": platform.python_version(), **versions},
        cpus=cpus,
    )


def _affinity() -> tuple[int, ...]:
    """Return the CPUs that this process may use; in a container these can be fewer than the machine has."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _cpu_model(cpuinfo: Path) -> str:
    """Return the CPU's model name: from `cpuinfo` on Linux, where `platform` gives the architecture at best."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "unknown"
