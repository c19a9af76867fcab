"""The GPU-time table of `bench`, and the columns that it shares with the throughput table."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.evaluation.benchmark import Comparison, Throughput
    from exporter.evaluation.benchmark.batch_sweep import AtBatch
    from exporter.evaluation.benchmark.timing import EngineRuns
    from exporter.runtimes.tensorrt.clocks import Clocks
    from exporter.workflows.folders.bench import Bench

__all__ = ["against_dense", "break_even_words", "clock_words", "print_gpu_time"]

COLUMNS = ("batch", "model", "img/s", "GPU ms", "p99", "in", "out", "speed-up", "quartiles", "E", "")


def print_gpu_time(result: "Bench") -> None:
    """Print the table, the clock rates and the trtexec commands."""
    from exporter.cli.output import print_lines, print_table

    title = f"GPU time by {result.gpu[0].throughput.dense.clock}: compute and the copies in and out, in ms"
    print_table(title, COLUMNS, [row for each in result.gpu for row in _gpu_rows(each)])
    print_lines(_gpu_lines(result))


def against_dense(comparison: "Comparison") -> tuple[str, str, str, str]:
    """Return the last columns of a pruned model's row: speed-up, quartiles, E and outcome."""
    low, high = comparison.quartiles
    speed = f"{comparison.speedup:.3f}"
    return speed, f"{low:.3f} to {high:.3f}", f"{comparison.efficiency:.2f}", comparison.outcome


def break_even_words(measured: "Sequence[AtBatch]") -> str:
    """Return a sentence that names the break-even batch."""
    from exporter.evaluation.benchmark.batch_sweep import break_even

    least = break_even(measured)
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


def _gpu_rows(at: "AtBatch") -> Iterator[tuple[str, ...]]:
    yield (str(at.batch), "dense", *_gpu_speed(at.throughput.dense), "", "", "", "")
    yield ("", "pruned", *_gpu_speed(at.throughput.pruned), *against_dense(at.comparison))


def _gpu_speed(time: "Throughput") -> tuple[str, ...]:
    runs = time.engine
    copies = () if runs is None else (f"{each:.3f}" for each in (runs.copy_in_ms, runs.copy_out_ms))
    return f"{time.images_per_s:.1f}", f"{time.median_ms:.3f}", f"{time.p99_ms:.3f}", *copies


def _runs_of(at: "AtBatch") -> "Iterator[tuple[str, EngineRuns]]":
    for role, time in vars(at.throughput).items():
        if time.engine is not None:
            yield role, time.engine


def _gpu_lines(result: "Bench") -> Iterator[str]:
    if built := result.built:
        yield f"{built.gpu} (SM {built.sm}), driver {built.driver}, CUDA {built.cuda}, TensorRT {built.tensorrt}"
    for at in result.gpu:
        if at.gpu is not None:
            yield f"clocks during batch {at.batch}: {clock_words(at.gpu)}"
        yield from _engine_lines(at)
        if at.selection is not None:
            cost = at.selection.cost
            low, high = cost.quartiles
            took = f"{cost.median:.3f} ({low:.3f} to {high:.3f}) of the time with plain slices"
            yield f"selection cost in GPU time at batch {at.batch}: {took}"
        if at.breakdown_ms is not None:
            for role, parts in vars(at.breakdown_ms).items():
                shown = ", ".join(f"{name} {ms:.3f}" for name, ms in parts.items() if ms)
                yield f"{role} at batch {at.batch}, ms by class: {shown}"
    yield f"in GPU time, {break_even_words(result.gpu)}"
    yield "trtexec commands that build and time the same engines:"
    yield from (f"  {shlex.join(runs.line)}" for at in result.gpu for _, runs in _runs_of(at))


def _engine_lines(at: "AtBatch") -> Iterator[str]:
    for role, runs in _runs_of(at):
        if not runs.cuda_graph:
            yield f"{role} at batch {at.batch}: CUDA graph capture failed, kernels were launched one by one"
    for role, runs in _runs_of(at):
        if load := runs.load:
            latencies = ", ".join(f"{ms:.3f} ms at {part} %" for part, ms in load.percentiles_ms.items())
            rate = f"{load.images_per_s:.1f} img/s in {load.streams} streams"
            yield f"{role} under load at batch {at.batch}: {rate}, latency {latencies}"
