"""Describe the machine of a measurement: CPU model, usable CPUs, versions of the loaded runtimes."""

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["VNNI", "Hardware", "cpu_lacks", "environment", "installed_versions"]

CPUINFO = Path("/proc/cpuinfo")
# Instructions that multiply bytes and add the products in 32 bits, by their names there. Others add two in 16 bits.
VNNI = ("avx512_vnni", "avx_vnni", "amx_int8")


# What a compilation depends on.
LIBRARIES = (
    "star-export",
    "torch",
    "timm",
    "onnx",
    "onnxscript",
    "onnx-graphsurgeon",
    "onnxruntime",
    "numpy",
)


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


def environment(threads: int | None = None, *, installed: bool = False) -> Hardware:
    """Describe this machine, and the versions of NumPy and of the loaded runtimes, or of all that are installed."""
    loaded = {
        name: sys.modules.get(name) for name in ("numpy", "onnxruntime", "openvino", "tensorrt", "torch")
    }
    versions = {name: str(module.__version__) for name, module in loaded.items() if module}
    cpus = _affinity()
    return Hardware(
        cpu_model=_cpu_model(),
        usable_cpus=len(cpus) or os.cpu_count() or 1,
        threads=threads,
        system=f"{platform.system()} {platform.machine()}",
        versions={
            "python": platform.python_version(),
            **versions,
            **(installed_versions() if installed else {}),
        },
        cpus=cpus,
    )


def installed_versions() -> dict[str, str]:
    """Return the versions, by name, of the installed libraries that a compilation uses."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def _affinity() -> tuple[int, ...]:
    """Return the CPUs that this process may use; in a container these can be fewer than the machine has."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def cpu_lacks(*instructions: str) -> bool:
    """Whether this is an x86 CPU with none of these instructions; False where Linux does not say."""
    has = set(_cpuinfo("flags").split())
    return bool(has) and has.isdisjoint(instructions)


def _cpu_model() -> str:
    """Return the CPU's model name: from Linux, since `platform` gives the architecture at best."""
    return _cpuinfo("model name") or platform.processor() or platform.machine() or "unknown"


def _cpuinfo(wanted: str) -> str:
    """Return the first value of a key that Linux has for the CPU, "" for none."""
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.is_file() else []
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == wanted and value.strip()), "")
