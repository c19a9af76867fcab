"""What engines take in the GPU's own time, as records: compute and copies apart, over turns of several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.evaluation.benchmark.timing import Comparison, Throughput, summary
from exporter.records import Pair
from exporter.runtimes.tensorrt.clocks import Clocks
from exporter.runtimes.tensorrt.gpu_timer import RunTimes
from exporter.runtimes.tensorrt.manifest import Built

__all__ = ["EngineBench", "EnginesAtBatch", "GpuTime", "gpu_time"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GpuTime:
    """One engine at one batch; a round is the median of one turn's runs.

    `latency` is the copy to the GPU, compute and the copy back, as trtexec has it; copies in milliseconds, medians.
    `line` is the trtexec command that builds the like and times it.
    """

    compute: Throughput
    latency: Throughput
    copy_in_ms: float
    copy_out_ms: float
    cuda_graph: bool
    line: tuple[str, ...]


@dataclass(frozen=True)
class EnginesAtBatch:
    """Both engines at one batch; the comparison is of compute. `clocks` are those right behind the last turn."""

    batch: int
    times: Pair[GpuTime]
    comparison: Comparison
    clocks: Clocks


@dataclass(frozen=True)
class EngineBench:
    """All batches; `timer` says who measured, `built` on what the engines were built."""

    timer: str
    built: Built
    batches: tuple[EnginesAtBatch, ...]
    break_even_batch: int | None


def gpu_time(turns: Sequence[RunTimes], batch: int, line: tuple[str, ...]) -> GpuTime:
    """Sum up the turns of one engine.

    Args:
        turns: One a round.
        batch: Images a run.
        line: The trtexec command.
    """
    copied_in, compute, copied_out = (
        [np.array(getattr(turn, part)) for turn in turns]
        for part in ("copy_in_ms", "compute_ms", "copy_out_ms")
    )
    latency = [
        going + ran + coming for going, ran, coming in zip(copied_in, compute, copied_out, strict=True)
    ]
    return GpuTime(
        compute=_summary(batch, compute),
        latency=_summary(batch, latency),
        copy_in_ms=float(np.median(np.concatenate(copied_in))),
        copy_out_ms=float(np.median(np.concatenate(copied_out))),
        cuda_graph=all(turn.cuda_graph for turn in turns),
        line=line,
    )


def _summary(batch: int, turns_ms: Sequence[Array]) -> Throughput:
    return summary(batch, np.concatenate(turns_ms), np.array([np.median(turn) for turn in turns_ms]))
