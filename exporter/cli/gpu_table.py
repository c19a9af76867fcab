"""The GPU-time table of `bench`, and the columns that it shares with the throughput table."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.evaluation.benchmark import Comparison
    from exporter.evaluation.benchmark.gpu_time import EngineBench, EnginesAtBatch, GpuTime
    from exporter.runtimes.tensorrt.clocks import Clocks

__all__ = ["against_dense", "break_even_words", "clock_words", "print_gpu_time"]

COLUMNS = ("batch", "model", "img/s", "GPU ms", "p99", "in", "out", "speed-up", "quartiles", "E", "")


def print_gpu_time(result: "EngineBench") -> None:
    """Print the table, the clock rates and the trtexec commands."""
    from exporter.cli.output import print_lines, print_table

    title = f"GPU time by {result.timer}: compute and the copies in and out, in ms"
    print_table(title, COLUMNS, [row for each in result.batches for row in _gpu_rows(each)])
    print_lines(_gpu_lines(result))


def against_dense(comparison: "Comparison") -> tuple[str, str, str, str]:
    """Return the last columns of a pruned model's row: speed-up, quartiles, E and outcome."""
    low, high = comparison.quartiles
    speed = f"{comparison.speedup:.3f}"
    return speed, f"{low:.3f} to {high:.3f}", f"{comparison.efficiency:.2f}", comparison.outcome


def break_even_words(least: int | None) -> str:
    """Return a sentence that names the break-even batch."""
    if least is None:
        return "pruning is not faster at the largest batch measured"
    return f"pruning is faster from batch {least} on, of those measured"


def clock_words(clocks: "Clocks") -> str:
    """Return the clocks in one line, with what held them down."""
    if not clocks.samples:
        return "unknown"
    sm = f"SM {clocks.sm_mhz:g} MHz (at least {clocks.least_sm_mhz:g}) of {clocks.most_sm_mhz:g}"
    told = f"{sm}, memory {clocks.memory_mhz:g} MHz, {clocks.power_w:g} W, {clocks.temperature_c:g} °C"
    return f"{told}, slowed by {' and '.join(clocks.slowed_by)}" if clocks.slowed_by else told


def _gpu_rows(at: "EnginesAtBatch") -> Iterator[tuple[str, ...]]:
    yield (str(at.batch), "dense", *_gpu_speed(at.times.dense), "", "", "", "")
    yield ("", "pruned", *_gpu_speed(at.times.pruned), *against_dense(at.comparison))


def _gpu_speed(time: "GpuTime") -> tuple[str, ...]:
    copies = (f"{each:.3f}" for each in (time.copy_in_ms, time.copy_out_ms))
    compute = time.compute
    return f"{compute.images_per_s:.1f}", f"{compute.median_ms:.3f}", f"{compute.p99_ms:.3f}", *copies


def _load_lines(at: "EnginesAtBatch") -> Iterator[str]:
    for role, time in (("dense", at.times.dense), ("pruned", at.times.pruned)):
        if time.load is not None:
            load = time.load
            latencies = ", ".join(f"{ms:.3f} ms at {part} %" for part, ms in load.percentiles_ms.items())
            rate = f"{load.images_per_s:.1f} img/s in {load.streams} streams"
            yield f"{role} under load at batch {at.batch}: {rate}, latency {latencies}"


def _gpu_lines(gpu: "EngineBench") -> Iterator[str]:
    built = gpu.built
    yield f"{built.gpu} (SM {built.sm}), driver {built.driver}, CUDA {built.cuda}, TensorRT {built.tensorrt}"
    for at in gpu.batches:
        yield f"clocks during batch {at.batch}: {clock_words(at.clocks)}"
        for role, time in (("dense", at.times.dense), ("pruned", at.times.pruned)):
            if not time.cuda_graph:
                yield f"{role} at batch {at.batch}: CUDA graph capture failed, kernels were launched one by one"
        yield from _load_lines(at)
        if at.selection is not None:
            cost = at.selection.cost
            low, high = cost.quartiles
            took = f"{cost.median:.3f} ({low:.3f} to {high:.3f}) of the time with plain slices"
            yield f"selection cost in GPU time at batch {at.batch}: {took}"
        if at.breakdown_ms is not None:
            for role, parts in (("dense", at.breakdown_ms.dense), ("pruned", at.breakdown_ms.pruned)):
                shown = ", ".join(f"{name} {ms:.3f}" for name, ms in parts.items() if ms)
                yield f"{role} at batch {at.batch}, ms by class: {shown}"
    yield f"in GPU time, {break_even_words(gpu.break_even_batch)}"
    yield "trtexec commands that build and time the same engines:"
    for at in gpu.batches:
        for time in (at.times.dense, at.times.pruned):
            yield f"  {shlex.join(time.line)}"
