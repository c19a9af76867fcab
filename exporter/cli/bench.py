"""Measure the throughput of the dense and the pruned model at several batch sizes, and the time per operator.

Takes an export folder or two ONNX files. Both models run in turns in one process, on real images. The pruned model
is called faster only if both quartiles of the per-round speed-ups are above 1.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from exporter.cli.flags import add_file, add_folder
from exporter.cli.output import (
    print_lines,
    print_table,
    schedule_words,
    show,
)
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.artefact import Artefact, read_pair
from exporter.core.base.errors import RecipeError
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME_CPU
from exporter.engines.choice import RunSettings
from exporter.measure.batch_sweep import AtBatch, BenchSettings
from exporter.measure.benchmark import EngineRuns, Ratio, Throughput
from exporter.report.engine_words import clock_words
from exporter.report.words import headline, milliseconds, sentence
from exporter.serve.bench import Bench, bench
from exporter.serve.export_folder import (
    REFERENCE,
    read_models,
    read_reference,
)

# What a pruned model has against the unpruned one.
COMPARED = ("speed-up", "quartiles")
COLUMNS = ("batch", "img/s", "GPU ms", "p99", "in", "out", *COMPARED)

EXAMPLES = (
    "star-export bench build/digits",
    "star-export bench --dense dense.onnx --pruned pruned.onnx --batches 1,8",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_folder(parser, "?")
    add_file(parser, "--dense", "The dense model, instead of a folder.")
    add_file(parser, "--pruned", "The pruned model.")
    text = "File with the images. Default: reference.npz beside the pruned model."
    add_file(parser, "--reference", text)
    add_flags(parser, BenchSettings)
    add_flags(parser, RunSettings)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; the exit code is 0 whichever model is faster, 2 where the GPU time is missing."""
    settings = from_flags(BenchSettings, arguments)
    runtime = from_flags(RunSettings, arguments)
    models, reference = _models(arguments)
    result = bench(models, reference, settings, arguments.stages, runtime=runtime)
    show(arguments, result, lambda: _print(result))
    if result.gpu_failure:
        print(f"error: {result.gpu_failure}", file=sys.stderr)
    return 2 if result.gpu_failure else 0


def _models(
    arguments: argparse.Namespace,
) -> tuple[Pair[Artefact], Mapping[str, Any]]:
    files = (arguments.dense, arguments.pruned)
    if arguments.folder is not None and files == (None, None):
        models, folder = read_models(arguments.folder), arguments.folder
    elif arguments.folder is None and None not in files:
        models, folder = read_pair(Pair(*files)), arguments.pruned.parent
    else:
        got = "a folder and files" if arguments.folder else "neither, or only one file"
        expected = "an export folder, or --dense FILE --pruned FILE"
        raise RecipeError("bench", got, expected)
    return models, read_reference(arguments.reference or folder / REFERENCE)


def _print(result: Bench) -> None:
    dense, pruned = result.macs.dense / 1e9, result.macs.pruned / 1e9
    gmacs = f"{dense:.3f} → {pruned:.3f} GMACs"
    saved = f"{1 - pruned / dense:.1%} of the dense file's multiply-adds saved"
    title = f"{result.model}, {schedule_words(result.schedule, saved)}: {gmacs}"
    columns = ("batch", "img/s", "median ms", "p99 ms", *COMPARED)
    print_lines([sentence(headline(result.batches))])
    print_table(title, columns, [row for at in result.batches for row in _rows(at)])
    if parts := [at.breakdown_ms for at in result.batches if at.breakdown_ms]:
        batches = [f"batch {at.batch}" for at in result.batches]
        heads = ("ms per run, dense → pruned", *batches)
        rows = []
        for name in parts[0].dense:
            times = [
                f"{milliseconds(part.dense[name])} → {milliseconds(part.pruned[name])}"
                for part in parts
            ]
            rows.append((name, *times))
        print_table("Time by operator class, profiled separately", heads, rows)
    if result.gpu:
        print_gpu_time(result)
    print_lines(_lines(result))


def _rows(at: AtBatch, *, sliced: bool = True) -> Iterator[tuple[str, ...]]:
    batch = at.batch
    yield f"{batch}, unpruned", *_speed(at.throughput.dense), "", ""
    yield (
        f"{batch}, pruned",
        *_speed(at.throughput.pruned),
        *against_dense(at.speed_up),
    )
    if sliced and at.selection is not None:
        ceiling = against_dense(at.selection.ceiling)
        yield f"{batch}, plain slices", *_speed(at.selection.sliced), *ceiling


def _speed(time: Throughput) -> tuple[str, ...]:
    """Return the first columns of a row; an engine's times have more digits, and its copies beside them."""
    runs = time.engine
    if runs is None:
        return (
            f"{time.images_per_s:.1f}",
            milliseconds(time.median_ms),
            milliseconds(time.p99_ms),
        )
    times_ms = (time.median_ms, time.p99_ms, runs.copy_in_ms, runs.copy_out_ms)
    return f"{time.images_per_s:.1f}", *(f"{ms:.3f}" for ms in times_ms)


def _lines(result: Bench) -> Iterator[str]:
    for at in result.batches:
        yield _outcome_line(at)
        yield from _selection_line(at, "selection cost")
    if result.runtime == ONNXRUNTIME_CPU.name and result.lacks_selection:
        yield "selection cost: not measured here, where the libraries that export models are not installed"
    yield "speed-up: the median of what each round gives, not the ratio of two medians"
    hardware, settings = result.hardware, result.settings
    threads, cpus = "one thread per physical core", f"{hardware.usable_cpus} CPUs"
    if hardware.cpu_quota is not None:
        threads = (
            f"{hardware.usable_cpus} threads (a quota of {hardware.cpu_quota:g} CPUs)"
        )
    if hardware.threads:
        threads = f"{hardware.threads} threads"
    if hardware.cpus:
        cpus = f"CPUs {','.join(map(str, hardware.cpus))}"
    versions = ", ".join(
        f"{name} {version}" for name, version in hardware.versions.items()
    )
    yield (
        f"{settings.rounds} rounds after {settings.warmup}, {threads}, {cpus} of {hardware.cpu_model}; "
        f"{result.runtime}, {versions}"
    )


def _selection_line(at: AtBatch, subject: str) -> Iterator[str]:
    if at.selection is not None:
        cost, (low, high) = at.selection.cost.median, at.selection.cost.quartiles
        outcome = "" if low > 1 else ": no cost is shown"
        yield (
            f"{subject} at batch {at.batch}: {cost:.3f} × the time of plain slices "
            f"(quartiles {low:.3f} to {high:.3f}{outcome})"
        )


def print_gpu_time(result: Bench) -> None:
    """Print what pruning gains, the table, the clock rates and the trtexec commands."""
    title = f"GPU time by {result.gpu[0].throughput.dense.clock}: compute and the copies in and out, in ms"
    print_lines([sentence(f"in GPU time, {headline(result.gpu)}")])
    print_table(
        title, COLUMNS, [row for at in result.gpu for row in _rows(at, sliced=False)]
    )
    print_lines(_gpu_lines(result))


def against_dense(speed_up: Ratio) -> tuple[str, str]:
    """Return the last columns of a pruned model's row: speed-up and quartiles."""
    low, high = speed_up.quartiles
    return f"{speed_up.median:.3f}", f"{low:.3f} to {high:.3f}"


def _outcome_line(at: AtBatch) -> str:
    efficiency = (
        f"efficiency {at.efficiency:.2f} (1: time falls as the multiply-adds do)"
    )
    return f"batch {at.batch}: {efficiency}"


def _runs_of(at: AtBatch) -> Iterator[tuple[str, EngineRuns]]:
    for role, time in vars(at.throughput).items():
        if time.engine is not None:
            yield role, time.engine


def _gpu_lines(result: Bench) -> Iterator[str]:
    if built := result.built:
        yield f"{built.gpu} (SM {built.sm}), driver {built.driver}, CUDA {built.cuda}, TensorRT {built.tensorrt}"
    for at in result.gpu:
        yield f"in GPU time, {_outcome_line(at)}"
        if at.gpu is not None:
            yield f"clocks during batch {at.batch}: {clock_words(at.gpu)}"
        yield from _engine_lines(at)
        yield from _selection_line(at, "selection cost in GPU time")
    yield "trtexec commands that build and time the same engines:"
    yield from (
        f"  {shlex.join(runs.line)}" for at in result.gpu for _, runs in _runs_of(at)
    )


def _engine_lines(at: AtBatch) -> Iterator[str]:
    for role, runs in _runs_of(at):
        if not runs.cuda_graph:
            yield f"{role} at batch {at.batch}: CUDA graph capture failed, kernels were launched one by one"
    for role, runs in _runs_of(at):
        if load := runs.load:
            latencies = ", ".join(
                f"{ms:.3f} ms at {part} %" for part, ms in load.percentiles_ms.items()
            )
            rate = f"{load.images_per_s:.1f} img/s in {load.streams} streams"
            yield f"{role} under load at batch {at.batch}: {rate}, latency {latencies}"
