"""Records of GPU time of engines: compute and copies separately, from turns of several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.evaluation.benchmark.batch_sweep import Selection
from exporter.evaluation.benchmark.timing import Comparison, Throughput, summary
from exporter.records import Pair
from exporter.runtimes.tensorrt.clocks import Clocks
from exporter.runtimes.tensorrt.gpu_timer import RunTimes
from exporter.runtimes.tensorrt.manifest import Built
from exporter.runtimes.tensorrt.trtexec_runs import Load

__all__ = ["EngineBench", "EnginesAtBatch", "GpuTime", "gpu_time"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GpuTime:
    """GPU time of one engine at one batch size; a round's time is the median of one turn's runs.

    `latency` is copy to the GPU + compute + copy back, as in trtexec. Copy times are medians in milliseconds.
    `line` is the trtexec command that builds and times the same engine. `load` is None unless asked for.
    """

    compute: Throughput
    latency: Throughput
    copy_in_ms: float
    copy_out_ms: float
    cuda_graph: bool
    line: tuple[str, ...]
    load: Load | None = None


@dataclass(frozen=True)
class EnginesAtBatch:
    """Both engines at one batch size. `comparison` is of compute; `clocks` are sampled while they run.

    `selection` compares the pruned engine's compute with the sliced variant's; None if that was not built.
    `breakdown_ms` is milliseconds per run by class of operator, from trtexec's profiler; None with another timer.
    """

    batch: int
    times: Pair[GpuTime]
    comparison: Comparison
    clocks: Clocks
    selection: Selection | None = None
    breakdown_ms: Pair[dict[str, float]] | None = None


@dataclass(frozen=True)
class EngineBench:
    """All batch sizes. `timer` names the timer, `built` the machine that the engines were built on."""

    timer: str
    built: Built
    batches: tuple[EnginesAtBatch, ...]
    break_even_batch: int | None


def gpu_time(
    turns: Sequence[RunTimes], batch: int, line: tuple[str, ...], load: Load | None = None
) -> GpuTime:
    """Summarise the turns of one engine.

    Args:
        turns: One per round.
        batch: Images per run.
        line: The trtexec command.
        load: The same engine under sustained load.
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
        load=load,
    )


def _summary(batch: int, turns_ms: Sequence[Array]) -> Throughput:
    return summary(batch, np.concatenate(turns_ms), np.array([np.median(turn) for turn in turns_ms]))
