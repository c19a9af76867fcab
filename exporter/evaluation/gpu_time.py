"""Measure the GPU time of dense and pruned engines, interleaved, with trtexec if present, else CUDA events."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from exporter.evaluation.batch_sweep import (
    AtBatch,
    BenchSettings,
    engine_breakdown,
    filled_batch,
    onnx_nodes_of,
)
from exporter.evaluation.benchmark import (
    LEAST_ROUNDS,
    EngineRuns,
    Throughput,
    in_turns,
    summary,
)
from exporter.records import Pair
from exporter.runtimes.tensorrt.gpu_timer import (
    Cuda,
    GpuTimer,
    RunTimes,
    clocks_of,
    sampled_clocks,
)
from exporter.runtimes.tensorrt.layer_info import layers_path, saved_layers
from exporter.runtimes.tensorrt.manifest import (
    ENGINES,
    EngineManifest,
    build_settings,
    engine_path,
    profile_for,
    read_manifest,
)
from exporter.runtimes.tensorrt.runner import gpu_uuid, load_engine
from exporter.runtimes.tensorrt.trtexec import (
    Load,
    build_command,
    has_trtexec,
    load_command,
    run_load,
    run_profile,
    run_trtexec,
)
from exporter.schedule.macs import MacCount
from exporter.tensor_names import IMAGES, Array


@dataclass(frozen=True)
class EngineFile:
    """An engine file, the ONNX file it was built from, and its manifest."""

    onnx: Path
    path: Path
    manifest: EngineManifest


# The engines that run each batch size, by role: dense, pruned and, if it is measured, sliced.
Engines: TypeAlias = Mapping[int, Mapping[str, EngineFile]]


def engine_files(
    files: Mapping[str, Path], batches: Sequence[int], *, one_profile: bool = False
) -> Engines:
    """Find the engines of ONNX files, given by role, for each batch size.

    With `one_profile` each batch size has an engine of its own.
    """

    def found(onnx: Path, batch: int) -> EngineFile:
        engine = engine_path(onnx.parent / ENGINES, onnx, batch if one_profile else 0)
        manifest = read_manifest(engine)
        profile_for(manifest, batch, engine.name)
        return EngineFile(onnx, engine, manifest)

    return {
        batch: {role: found(onnx, batch) for role, onnx in files.items()} for batch in batches
    }


def gpu_time(
    turns: Sequence[RunTimes],
    batch: int,
    clock: str,
    line: tuple[str, ...],
    load: Load | None = None,
) -> Throughput:
    """Summarise the turns of one engine, one per round: the times of its compute. `line` is the trtexec command."""
    copied_in, compute, copied_out = (
        [np.array(getattr(turn, part)) for turn in turns]
        for part in ("copy_in_ms", "compute_ms", "copy_out_ms")
    )
    latency = [
        going + ran + coming
        for going, ran, coming in zip(copied_in, compute, copied_out, strict=True)
    ]
    runs = EngineRuns(
        latency=_summary(batch, latency, clock),
        copy_in_ms=float(np.median(np.concatenate(copied_in))),
        copy_out_ms=float(np.median(np.concatenate(copied_out))),
        cuda_graph=all(turn.cuda_graph for turn in turns),
        line=line,
        load=load,
    )
    return replace(_summary(batch, compute, clock), engine=runs)


def _summary(batch: int, turns_ms: Sequence[Array], clock: str) -> Throughput:
    rounds_ms = np.array([np.median(turn) for turn in turns_ms])
    return summary(batch, np.concatenate(turns_ms), rounds_ms, clock=clock)


TRTEXEC, EVENTS = "trtexec", "CUDA events"
# Runs of one engine in a turn. With trtexec, which loads the engine each time, a turn is one second of runs.
RUNS_A_TURN = 10
A_TURN_OF_TRTEXEC = ("--warmUp=200", "--duration=1")

Turn: TypeAlias = Callable[[], RunTimes]


@dataclass(frozen=True)
class Run:
    """What all engines of a benchmark are run with.

    `images` [n, 3, H, W] are in the models' input format, repeated or cut to each batch size. `timer` is the result
    of `timer_here`. trtexec always has five rounds, and reads raw images in the folder `raw`; None is the export
    folder. `plugin` is the CdfRetain library, for an engine that does not contain it.
    """

    images: Array
    settings: BenchSettings
    timer: str
    plugin: Path | None = None
    raw: Path | None = None


def timer_here(tensorrt: str) -> str:
    """Return the timer available on this machine, TRTEXEC or EVENTS."""
    if has_trtexec(tensorrt):
        return TRTEXEC
    Cuda()
    return EVENTS


def measure_engines(engines: Engines, macs: Pair[MacCount], run: Run) -> Iterator[AtBatch]:
    """Measure all engines at each batch size by the GPU's clock; `macs` are multiply-adds per image."""
    for batch, named in engines.items():
        with sampled_clocks(gpu_uuid()) as clocks:
            times = engine_times(named, batch, run)
        breakdown = _breakdowns(named, batch, run)
        yield replace(AtBatch.of(times, macs), gpu=clocks_of(clocks), breakdown_ms=breakdown)


def engine_times(
    named: Mapping[str, EngineFile], batch: int, run: Run
) -> dict[str, Throughput]:
    """Measure engines in turns at one batch size, then each under load, if that is asked for; results by name."""
    by_trtexec = run.timer == TRTEXEC
    rounds = (LEAST_ROUNDS, 0) if by_trtexec else (run.settings.rounds, run.settings.warmup)
    taken: dict[str, list[RunTimes]] = {role: [] for role in named}
    with ExitStack() as stack:
        turns = {
            role: _by_trtexec(each, batch, run)
            if by_trtexec
            else _by_events(each, batch, run, stack)
            for role, each in named.items()
        }
        for role, counts in in_turns(named, *rounds):
            times = turns[role]()
            if counts:
                taken[role].append(times)
    return {
        role: gpu_time(
            taken[role], batch, run.timer, _line(each, batch, run), _load(each, batch, run)
        )
        for role, each in named.items()
    }


def _by_trtexec(engine: EngineFile, batch: int, run: Run) -> Turn:
    return partial(run_trtexec, _words(engine, batch, run), *A_TURN_OF_TRTEXEC)


def _by_events(engine: EngineFile, batch: int, run: Run, stack: ExitStack) -> Turn:
    loaded = load_engine(engine.path, engine.onnx, plugin=run.plugin)
    timer = GpuTimer(loaded, {IMAGES: filled_batch(run.images, batch)}, batch, Cuda())
    return partial(stack.enter_context(timer).turn, RUNS_A_TURN)


def _load(engine: EngineFile, batch: int, run: Run) -> Load | None:
    settings = run.settings
    if not settings.load_s or run.timer != TRTEXEC:
        return None
    return run_load(_words(engine, batch, run), batch, settings.load_s, settings.streams)


def _breakdowns(
    named: Mapping[str, EngineFile], batch: int, run: Run
) -> Pair[dict[str, float]] | None:
    """Profile the dense and the pruned engine; None without trtexec, or without the layers that `build` saves."""
    saved = all(layers_path(each.path).is_file() for each in named.values())
    if run.timer != TRTEXEC or not saved:
        return None
    layers = {
        role: saved_layers(each.path, profile_for(each.manifest, batch, each.path.name))
        for role, each in named.items()
    }
    # Without the sliced engine, the words of a layer alone tell what is selection.
    nodes = {role: onnx_nodes_of(each) for role, each in layers.items()}
    chosen = nodes["pruned"] - nodes["sliced"] if "sliced" in nodes else frozenset()
    return Pair(
        *(
            engine_breakdown(
                run_profile(
                    _words(named[role], batch, run), named[role].manifest.built.tensorrt
                ),
                layers[role],
                chosen,
            )
            for role in ("dense", "pruned")
        )
    )


def _words(engine: EngineFile, batch: int, run: Run) -> list[str]:
    image, transfers = run.images.shape[1:], run.settings.transfers
    return load_command(
        engine.path, engine.manifest, image, batch, run.plugin, transfers=transfers, raw=run.raw
    )


def _line(engine: EngineFile, batch: int, run: Run) -> tuple[str, ...]:
    """Return a command for users to repeat; it reads the raw images of the export folder."""
    settings = build_settings(engine.manifest, run.plugin)
    version = engine.manifest.built.tensorrt
    return tuple(
        build_command(engine.onnx, run.images.shape[1:], batch, settings, tensorrt=version)
    )
