"""Measure the GPU time of a dense and a pruned engine, interleaved, with trtexec if present, else CUDA events.

This adds to the host-to-host time that is measured for every runtime: it separates compute from the copies to
the GPU and back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.evaluation.benchmark.gpu_time import EnginesAtBatch, gpu_time
from exporter.evaluation.benchmark.settings import BenchSettings
from exporter.evaluation.benchmark.timing import LEAST_ROUNDS, compare_speed, in_turns
from exporter.records import Pair
from exporter.runtimes.tensorrt.clocks import sampled_clocks
from exporter.runtimes.tensorrt.cuda import Cuda
from exporter.runtimes.tensorrt.gpu_timer import GpuTimer, RunTimes
from exporter.runtimes.tensorrt.loading import LoadedEngine, load_engine
from exporter.runtimes.tensorrt.machine import gpu_uuid
from exporter.runtimes.tensorrt.manifest import (
    ENGINES,
    EngineManifest,
    build_settings,
    engine_path,
    profile_for,
    read_manifest,
)
from exporter.runtimes.tensorrt.trtexec import build_command, has_trtexec, load_command, run_trtexec
from exporter.schedule.macs import MacCount
from exporter.tensor_names import IMAGES

__all__ = ["EngineFile", "engine_file", "measure_engines", "timer_here"]

TRTEXEC, EVENTS = "trtexec", "CUDA events"
# Runs of one engine in a turn. With trtexec, which loads the engine each time, a turn is one second of runs.
RUNS_A_TURN = 10
A_TURN_OF_TRTEXEC = ("--warmUp=200", "--duration=1")

Array = np.ndarray[Any, Any]
Turn: TypeAlias = Callable[[], RunTimes]


@dataclass(frozen=True)
class EngineFile:
    """An engine file, the ONNX file it was built from, and its manifest."""

    onnx: Path
    path: Path
    manifest: EngineManifest


def engine_file(onnx: Path, batches: Sequence[int]) -> EngineFile:
    """Find the engine that `build` wrote for an ONNX file.

    Raises:
        ArtefactError: There is no engine.
        UserError: It was not built for one of the batch sizes.
    """
    engine = engine_path(onnx.parent / ENGINES, onnx)
    manifest = read_manifest(engine)
    for batch in batches:
        profile_for(manifest, batch, engine.name)
    return EngineFile(onnx, engine, manifest)


def timer_here(tensorrt: str) -> str:
    """Return the timer available on this machine, TRTEXEC or EVENTS.

    Raises:
        MissingDependencyError: Neither trtexec nor cuda-bindings is installed.
    """
    if has_trtexec(tensorrt):
        return TRTEXEC
    Cuda()
    return EVENTS


def measure_engines(
    engines: Pair[EngineFile],
    images: Array,
    macs: Pair[MacCount],
    settings: BenchSettings,
    *,
    timer: str,
    plugin: Path | None = None,
) -> Iterator[EnginesAtBatch]:
    """Measure both engines at each batch size.

    Args:
        engines: The dense and the pruned engine; trtexec reads the raw images of their folder.
        images: [n, 3, H, W], in the models' input format; repeated or cut to each batch size.
        macs: Multiply-adds per image.
        settings: Batch sizes, rounds, warm-up; trtexec always has five rounds.
        timer: The result of `timer_here`.
        plugin: The CdfRetain library, for an engine that does not contain it.

    Raises:
        UserError: An engine does not load or run.
    """
    named = {"dense": engines.dense, "pruned": engines.pruned}
    loaded = {} if timer == TRTEXEC else {name: _load(each, plugin) for name, each in named.items()}
    for batch in settings.batches:
        if timer == TRTEXEC:
            turns, rounds = _trtexec_turns(named, images, batch, plugin), (LEAST_ROUNDS, 0)
        else:
            turns, rounds = _event_turns(loaded, images, batch), (settings.rounds, settings.warmup)
        taken: dict[str, list[RunTimes]] = {name: [] for name in named}
        with sampled_clocks(gpu_uuid()) as clocks, turns as turn:
            for name, counts in in_turns(named, *rounds):
                times = turn[name]()
                if counts:
                    taken[name].append(times)
        pair = Pair(
            *(gpu_time(taken[n], batch, _line(each, images, batch, plugin)) for n, each in named.items())
        )
        comparison = compare_speed(
            pair.dense.compute, pair.pruned.compute, (macs.dense.total, macs.pruned.total)
        )
        yield EnginesAtBatch(batch, pair, comparison, clocks.summary())


def _load(engine: EngineFile, plugin: Path | None) -> LoadedEngine:
    return load_engine(engine.path, engine.onnx, plugin=plugin)


@contextmanager
def _trtexec_turns(
    named: Mapping[str, EngineFile], images: Array, batch: int, plugin: Path | None
) -> Iterator[Mapping[str, Turn]]:
    def turn(each: EngineFile) -> Turn:
        words = load_command(each.path, each.manifest, images.shape[1:], batch, plugin)
        return partial(run_trtexec, words, *A_TURN_OF_TRTEXEC)

    yield {name: turn(each) for name, each in named.items()}


@contextmanager
def _event_turns(
    loaded: Mapping[str, LoadedEngine], images: Array, batch: int
) -> Iterator[Mapping[str, Turn]]:
    feed, cuda = {IMAGES: resized(images, batch)}, Cuda()
    timers = {name: GpuTimer(each, feed, batch, cuda) for name, each in loaded.items()}
    with timers["dense"], timers["pruned"]:
        yield {name: partial(timer.turn, RUNS_A_TURN) for name, timer in timers.items()}


def _line(engine: EngineFile, images: Array, batch: int, plugin: Path | None) -> tuple[str, ...]:
    settings = build_settings(engine.manifest, plugin)
    version = engine.manifest.built.tensorrt
    return tuple(build_command(engine.onnx, images.shape[1:], batch, settings, tensorrt=version))
