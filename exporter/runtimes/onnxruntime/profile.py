"""Measure the time of each kernel with ONNX Runtime's profiler."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.runtimes.base import Feed
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner

__all__ = ["Kernel", "kernels_of", "profile"]

_SUFFIX = "_kernel_time"


@dataclass(frozen=True)
class Kernel:
    """One node of the optimised graph: its mean time per run, and the execution provider that ran it."""

    name: str
    operator: str
    time_ms: float
    provider: str = ""


def profile(
    model: Path | bytes,
    feed: Feed,
    *,
    runs: int,
    warmup: int = 3,
    threads: int = 0,
    providers: Sequence[str] = ("CPUExecutionProvider",),
) -> tuple[Kernel, ...]:
    """Run a model in a new session with profiling on, which itself takes time.

    Args:
        model: A file, or its bytes.
        feed: The inputs of every run.
        runs: Runs to measure.
        warmup: Runs before them, not measured.
        threads: CPU threads within an operator; 0 is one per physical core.
        providers: Execution providers, the preferred one first.
    """
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "profile"
        runner = OnnxRuntimeRunner(model, threads=threads, profile_prefix=prefix, providers=providers)
        with runner:
            for _ in range(warmup + runs):
                runner.run(feed)
            trace = json.loads(runner.end_profiling().read_text(encoding="utf-8"))
    return kernels_of(trace, warmup)


def kernels_of(trace: Iterable[dict[str, Any]], warmup: int) -> tuple[Kernel, ...]:
    """Return the kernels of a profile in the order of their first run, without the first `warmup` runs.

    Args:
        trace: The profile's events; times in microseconds.
        warmup: Runs to leave out.
    """
    events = [event for event in trace if event.get("ph") == "X"]
    counted = sorted(event["ts"] for event in events if event["name"] == "model_run")[warmup:]
    total_us: dict[tuple[str, str, str], int] = defaultdict(int)
    for event in events:
        if event["name"].endswith(_SUFFIX) and counted and event["ts"] >= counted[0]:
            name, told = event["name"].removesuffix(_SUFFIX), event["args"]
            total_us[name, told["op_name"], told.get("provider", "")] += event["dur"]
    return tuple(
        Kernel(name, operator, time_us / len(counted) / 1e3, provider)
        for (name, operator, provider), time_us in total_us.items()
    )
