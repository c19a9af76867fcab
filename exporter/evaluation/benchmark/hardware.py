"""Where a number was measured: the machine, the CPUs that may be used, the versions that were loaded."""

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Hardware", "environment"]


@dataclass(frozen=True)
class Hardware:
    """Where a number was measured; `threads` is what the runners were given, None or 0 for their own choice.

    `cpus` are the numbers of those that the process may run on, empty where the system does not tell.
    """

    cpu_model: str
    usable_cpus: int
    threads: int | None
    system: str
    versions: dict[str, str]
    cpus: tuple[int, ...] = ()


def environment(threads: int | None = None) -> Hardware:
    """This machine, and the versions of NumPy and of the runtimes that are loaded."""
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
    """CPUs that this process may use, which in a container are fewer than the machine has."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _cpu_model(cpuinfo: Path) -> str:
    """Linux keeps the model's name in a file of its own, where `platform` has the architecture at best."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "unknown"
