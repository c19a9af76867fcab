"""This machine: its CPU, the versions of its libraries, and the identity of a job that it leaves unfinished."""

import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from exporter.core.base.canonical_json import to_json

CPUINFO = Path("/proc/cpuinfo")
# The groups of this process, by which Linux limits containers, and where their files are.
MEMBERSHIP, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
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

    `cpus` are the indices of the CPUs that the process may use, empty if the system does not report them. The time
    of how many it may use at once is `cpu_quota`, None for all; `usable_cpus` is the smaller number.
    """

    cpu_model: str
    usable_cpus: int
    threads: int | None
    system: str
    versions: dict[str, str]
    cpus: tuple[int, ...] = ()
    cpu_quota: float | None = None


def environment(threads: int | None = None, *, installed: bool = False) -> Hardware:
    """Describe this machine, and the versions of NumPy and of the loaded runtimes, or of all that are installed."""
    loaded = [library for library in COMPUTE if library in sys.modules]
    cpus = _affinity()
    return Hardware(
        cpu_model=cpu_model(),
        usable_cpus=within_quota() or _cpu_count(),
        threads=threads,
        system=f"{platform.system()} {platform.machine()}",
        versions=versions((*loaded, *LIBRARIES) if installed else loaded),
        cpus=cpus,
        cpu_quota=cpu_quota(),
    )


def within_quota(threads: int = 0) -> int:
    """Return the number of threads; for 0, where a container may use fewer CPUs than it sees, as many as it may.

    More threads would be stopped together when the time is used up. 0: the runtime decides.
    """
    quota = cpu_quota()
    if threads or quota is None or quota >= _cpu_count():
        return threads
    return max(1, int(quota))


def cpu_quota() -> float | None:
    """Return how many CPUs' time the groups of this process allow, the least of all; None without a limit."""
    quotas = [quota for group in _groups() if (quota := _quota_of(group)) is not None]
    return min(quotas, default=None)


def _groups() -> Iterator[Path]:
    """Yield the folders of this process's groups for CPUs, of either version, each with those above it.

    In a container, the paths may be those of the host: only the root is then there.
    """
    for line in _lines_of(MEMBERSHIP):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            roots = [GROUPS, GROUPS / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [GROUPS / controllers, GROUPS / "cpu"]
        else:
            continue
        for root in roots:
            group = root
            yield root
            for part in Path(path).parts[1:]:
                group /= part
                yield group


def _quota_of(group: Path) -> float | None:
    """Return the CPUs that a group allows: version 2 has both numbers in a file, version 1 in two."""
    with suppress(OSError, ValueError):
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="utf-8")
            period = (group / "cpu.cfs_period_us").read_text(encoding="utf-8")
        # Without a limit it is "max" or -1.
        return int(quota) / int(period) if int(quota) > 0 else None
    return None


def _cpu_count() -> int:
    return len(_affinity()) or os.cpu_count() or 1


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
    settings: object,
    *,
    models: Sequence[object] = (),
    images: Sequence[str | None] = (),
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
    return (
        _cpuinfo("model name")
        or platform.processor()
        or platform.machine()
        or "unknown"
    )


def cpu_lacks(*instructions: str) -> bool:
    """Whether this is an x86 CPU with none of these instructions; False where Linux does not say."""
    has = set(_cpuinfo("flags").split())
    return bool(has) and has.isdisjoint(instructions)


def _affinity() -> tuple[int, ...]:
    """Return the CPUs that this process may use; in a container these can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return ()


def _cpuinfo(wanted: str) -> str:
    """Return the first value of a key that Linux has for the CPU, "" for none."""
    for line in _lines_of(CPUINFO):
        key, _, value = line.partition(":")
        if key.strip() == wanted and value.strip():
            return value.strip()
    return ""


def _lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
