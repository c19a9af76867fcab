"""This machine: its CPU, the versions of its libraries, and the identity of a job that it leaves unfinished."""

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from exporter.formats.canonical_json import to_json

CPUINFO = Path("/proc/cpuinfo")
# Instructions that multiply bytes and add the products in 32 bits, by their names there. Others add two in 16 bits.
VNNI = ("avx512_vnni", "avx_vnni", "amx_int8")

# Libraries that compute, in a process that has loaded them.
COMPUTE = ("numpy", "onnxruntime", "openvino", "tensorrt", "torch")
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
# What a job reads images and measures with beside them.
MORE = ("pillow", "torchvision", "openvino")


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
    loaded = [library for library in COMPUTE if library in sys.modules]
    cpus = _affinity()
    return Hardware(
        cpu_model=cpu_model(),
        usable_cpus=len(cpus) or os.cpu_count() or 1,
        threads=threads,
        system=f"{platform.system()} {platform.machine()}",
        versions=versions((*loaded, *LIBRARIES) if installed else loaded),
        cpus=cpus,
    )


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of those libraries that are installed, by name."""
    known = {"python": platform.python_version()}
    for library in libraries:
        try:
            known[library] = version(library)
        except PackageNotFoundError:
            continue
    return known


def job_identity(
    settings: object, *, models: Sequence[object] = (), images: Sequence[str | None] = ()
) -> str:
    """Return all that an unfinished job depends on, as text: no job with another identity may continue it.

    Args:
        settings: Records that JSON can hold.
        models: The shapes of models, and the hashes of their weights.
        images: Digests of the images, in the order of their use.
    """
    parts = {"settings": settings, "models": models, "images": images}
    return to_json({**parts, "versions": versions((*LIBRARIES, *MORE))})


def cpu_model() -> str:
    """Return the CPU's model name: from Linux, since `platform` gives the architecture at best."""
    return _cpuinfo("model name") or platform.processor() or platform.machine() or "unknown"


def cpu_lacks(*instructions: str) -> bool:
    """Whether this is an x86 CPU with none of these instructions; False where Linux does not say."""
    has = set(_cpuinfo("flags").split())
    return bool(has) and has.isdisjoint(instructions)


def _affinity() -> tuple[int, ...]:
    """Return the CPUs that this process may use; in a container these can be fewer than the machine has."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _cpuinfo(wanted: str) -> str:
    """Return the first value of a key that Linux has for the CPU, "" for none."""
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.is_file() else []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == wanted and value.strip():
            return value.strip()
    return ""
