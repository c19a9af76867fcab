"""How fast several runners are, measured beside each other in one run.

A machine's speed drifts while it is measured. Every round therefore runs every model once, in alternating
order, and a speed-up is the median of the rounds' own ratios, with the quartiles that say how sure it is.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exporter.errors import UserError
from exporter.runners.base import Feed, Runner

__all__ = [
    "Comparison",
    "Hardware",
    "Throughput",
    "compare_speed",
    "environment",
    "throughput",
]

# A quartile of fewer rounds is one round's word.
_LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Throughput:
    """One runner's time for a batch, host to host; images_per_s comes from the median."""

    batch: int
    images_per_s: float
    median_ms: float
    p99_ms: float
    quartiles_ms: tuple[float, float]
    rounds_ms: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """A dense model over a pruned one, round by round.

    `speedup` is the median of dense ÷ pruned time. The verdict is "undecided" where the quartiles straddle 1,
    else "faster" or "slower". `efficiency` is speedup ÷ `mac_ratio`: 1 where every multiply-add saved is time
    saved. Both are None without MACs.
    """

    speedup: float
    quartiles: tuple[float, float]
    verdict: str
    mac_ratio: float | None
    efficiency: float | None


@dataclass(frozen=True)
class Hardware:
    """Where a number was measured; `threads` is what the runners were given, None for their own choice."""

    cpu_model: str
    usable_cpus: int
    threads: int | None
    system: str
    versions: dict[str, str]


def throughput(
    runners: Mapping[str, Runner],
    feed: Feed,
    *,
    batch: int,
    rounds: int,
    warmup: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Throughput]:
    """Time every runner on the same feed, interleaved.

    Args:
        runners: By the name that the result has.
        feed: What every runner takes; each array has `batch` images.
        batch: Images in the feed.
        rounds: Timed runs of each runner, at least 5.
        warmup: Runs of each runner before the clock counts: the first ones allocate and tune.
        clock: Seconds, from any start.

    Raises:
        UserError: There is no runner, a count is too low, or the feed has another batch.
    """
    _check(runners, feed, batch, rounds, warmup)
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    with ExitStack() as stack:
        for runner in runners.values():
            stack.enter_context(runner)
        for round_ in range(-warmup, rounds):
            order = list(runners)[:: 1 if round_ % 2 == 0 else -1]
            for name in order:
                start = clock()
                runners[name].run(feed)
                elapsed_s = clock() - start
                if round_ >= 0:
                    seconds[name].append(elapsed_s)
    return {name: _summary(batch, times_s) for name, times_s in seconds.items()}


def compare_speed(
    dense: Throughput, pruned: Throughput, macs: tuple[float, float] | None = None
) -> Comparison:
    """How much faster the pruned model is, from one call of `throughput`.

    Args:
        dense: The unpruned model.
        pruned: The pruned model, measured in the same rounds.
        macs: Multiply-adds of the dense and of the pruned model, per image.

    Raises:
        UserError: The two were not measured in the same rounds on the same batch.
    """
    if (dense.batch, len(dense.rounds_ms)) != (pruned.batch, len(pruned.rounds_ms)):
        got = f"batch {pruned.batch} in {len(pruned.rounds_ms)} rounds"
        raise UserError("pruned", got, f"batch {dense.batch} in {len(dense.rounds_ms)} rounds, as dense has")
    low, speedup, high = np.percentile(np.divide(dense.rounds_ms, pruned.rounds_ms), [25, 50, 75]).tolist()
    verdict = "faster" if low > 1 else "slower" if high < 1 else "undecided"
    ratio = macs[0] / macs[1] if macs else None
    return Comparison(speedup, (low, high), verdict, ratio, speedup / ratio if ratio else None)


def environment(threads: int | None = None) -> Hardware:
    """This machine, and the versions of NumPy and of the runtimes that are loaded."""
    loaded = {name: sys.modules.get(name) for name in ("numpy", "onnxruntime", "torch")}
    versions = {name: str(module.__version__) for name, module in loaded.items() if module}
    return Hardware(
        cpu_model=_cpu_model(Path("/proc/cpuinfo")),
        usable_cpus=_usable_cpus(),
        threads=threads,
        system=f"{platform.system()} {platform.machine()}",
        versions={"python": platform.python_version(), **versions},
    )


def _summary(batch: int, times_s: list[float]) -> Throughput:
    times_ms = np.array(times_s) * 1e3
    low, median, high = np.percentile(times_ms, [25, 50, 75]).tolist()
    # A time that was measured, not one between two: the tail is what a service must promise.
    p99 = float(np.percentile(times_ms, 99, method="higher"))
    return Throughput(batch, batch / median * 1e3, median, p99, (low, high), tuple(times_ms.tolist()))


def _check(runners: Mapping[str, Runner], feed: Feed, batch: int, rounds: int, warmup: int) -> None:
    if not runners:
        raise UserError("runners", "none", "at least one")
    if batch < 1 or rounds < _LEAST_ROUNDS or warmup < 0:
        got = f"batch={batch}, rounds={rounds}, warmup={warmup}"
        raise UserError("benchmark", got, f"batch >= 1, rounds >= {_LEAST_ROUNDS}, warmup >= 0")
    for name, array in feed.items():
        if array.shape[:1] != (batch,):
            raise UserError(f"input {name}", str(list(array.shape)), f"{batch} images")


def _usable_cpus() -> int:
    """CPUs that this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model(cpuinfo: Path) -> str:
    """Linux keeps the model's name in a file of its own, where `platform` has the architecture at best."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "unknown"
