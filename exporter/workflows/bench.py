"""Measure a dense and a pruned ONNX model of ours beside each other: their speed, and what it goes into."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.evaluation.benchmark import Hardware, environment
from exporter.evaluation.benchmark.batch_sweep import (
    AtBatch,
    Contestants,
    break_even,
    measure_batches,
    resized,
)
from exporter.evaluation.benchmark.breakdown import breakdown
from exporter.evaluation.benchmark.engine_runs import EngineSubject
from exporter.evaluation.benchmark.gpu_time import EngineBench
from exporter.evaluation.benchmark.settings import BenchSettings
from exporter.evaluation.benchmark.sliced import NOT_SLICED, Sliced, sliced_of
from exporter.evaluation.benchmark.subjects import Subject, delivered_pair, read_pair
from exporter.evaluation.benchmark.timing import Clock
from exporter.records import ModelSpec, Pair, Schedule, load_json
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import (
    ONNXRUNTIME_CPU,
    PROVIDERS,
    TENSORRT,
    RunSettings,
    require_runtime,
    runner_for,
    runtime_for,
)
from exporter.runtimes.onnxruntime_profile import Kernel, profile
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.macs import MacCount
from exporter.targets import ONNXRUNTIME, Target
from exporter.tensor_names import IMAGES
from exporter.workflows.engine_times import bench_engines, engines_of
from exporter.workflows.export_folder import MODEL, SCHEDULE
from exporter.workflows.progress import Silent, Stages

__all__ = ["Bench", "bench"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bench:
    """A benchmark. `breakdown_ms` has milliseconds a run by class of operator, for each batch size in order.

    `break_even_batch` is None where pruning does not pay at the largest batch measured. `gpu` has the GPU's own
    time, where engines ran.
    """

    model: str
    runtime: str
    method: str
    rho: float | None
    files: Pair[str]
    macs: Pair[int]
    batches: tuple[AtBatch, ...]
    break_even_batch: int | None
    breakdown_ms: tuple[Pair[dict[str, float]], ...]
    settings: BenchSettings
    hardware: Hardware
    gpu: EngineBench | None = None


@dataclass(frozen=True)
class Ready:
    """All that is measured: both models on their runtime, the sliced variant, the engines where there are any."""

    runtime: str
    pair: Pair[Subject]
    images: Array
    macs: Pair[MacCount]
    runners: Pair[Runner]
    sliced: Sliced
    engines: Pair[EngineSubject] | None


def bench(
    files: Pair[Path],
    reference: Mapping[str, Array],
    settings: BenchSettings,
    stages: Stages | None = None,
    clock: Clock = time.perf_counter,
    *,
    target: Target = ONNXRUNTIME,
    runtime: RunSettings | None = None,
) -> Bench:
    """Measure both files on one runtime.

    Args:
        files: The dense and the pruned model, as `lower` made them.
        reference: `images` [n, 3, H, W], as the models take them; and what an a-STAR model keeps of them.
        settings: Batch sizes, rounds, threads.
        stages: Shows where the job is.
        clock: Seconds, from any start.
        target: What the files were made for.
        runtime: The target's by default; TensorRT takes the engines of the files' folder.

    Raises:
        ArtefactError: A file is none of ours, is in the other's place, or is of another model.
        UserError: The runtime is not here, or runs the models elsewhere.
    """
    stages, runtime = stages or Silent(), runtime or RunSettings(threads=settings.threads)
    with stages.stage("models"):
        ready = _ready(files, reference, settings, target, runtime)
    measured = _throughputs(ready, settings, stages, clock)
    pruned = ready.pair.pruned
    return Bench(
        model=pruned.spec.name,
        runtime=ready.runtime,
        method=pruned.schedule.method,
        rho=pruned.schedule.rho,
        files=Pair(files.dense.name, files.pruned.name),
        macs=Pair(ready.macs.dense.total, ready.macs.pruned.total),
        batches=measured,
        break_even_batch=break_even(measured),
        breakdown_ms=_breakdowns(ready, settings, stages),
        settings=settings,
        hardware=environment(settings.threads),
        gpu=_gpu_times(ready, settings, runtime.plugin, stages),
    )


def _ready(
    files: Pair[Path],
    reference: Mapping[str, Array],
    settings: BenchSettings,
    target: Target,
    runtime: RunSettings,
) -> Ready:
    name, images = runtime_for(target, runtime), reference[IMAGES]
    pair = _pair(files, name)
    for path in (files.dense, files.pruned):
        require_runtime(path, {IMAGES: images[:1]}, target, runtime)
    sliced = sliced_of(pair.pruned) if settings.selection_cost and name == ONNXRUNTIME_CPU else NOT_SLICED
    return Ready(
        runtime=name,
        pair=pair,
        images=images,
        macs=Pair(pair.dense.macs(reference), pair.pruned.macs(reference)),
        runners=Pair(*(runner_for(each.path, target, runtime) for each in (pair.dense, pair.pruned))),
        sliced=sliced,
        engines=engines_of(Pair(pair.dense.path, pair.pruned.path), settings) if name == TENSORRT else None,
    )


def _throughputs(ready: Ready, settings: BenchSettings, stages: Stages, clock: Clock) -> tuple[AtBatch, ...]:
    plain: Runner | None = None
    if ready.sliced.model is not None:
        plain = OnnxRuntimeRunner(ready.sliced.model, name="the sliced model", threads=settings.threads)
    contestants = Contestants(ready.runners.dense, ready.runners.pruned, plain, ready.macs)
    measured = []
    with stages.stage(f"throughput, batches {', '.join(map(str, settings.batches))}") as advance:
        for each in measure_batches(contestants, ready.images, settings, clock):
            measured.append(each)
            advance(len(measured), len(settings.batches))
    return tuple(measured)


def _pair(files: Pair[Path], runtime: str) -> Pair[Subject]:
    """ONNX Runtime reads what a file says of itself; for other runtimes it is what lies in the folder."""
    if runtime in PROVIDERS:
        return read_pair(files)
    folder = files.pruned.parent
    return delivered_pair(files, load_json(ModelSpec, folder / MODEL), load_json(Schedule, folder / SCHEDULE))


def _breakdowns(ready: Ready, settings: BenchSettings, stages: Stages) -> tuple[Pair[dict[str, float]], ...]:
    """For each batch; none on a runtime whose kernels are not profiled."""
    if not settings.profile_runs or ready.runtime != ONNXRUNTIME_CPU:
        return ()
    with stages.stage("profile"):
        return tuple(_breakdown(ready, resized(ready.images, batch), settings) for batch in settings.batches)


def _gpu_times(
    ready: Ready, settings: BenchSettings, plugin: Path | None, stages: Stages
) -> EngineBench | None:
    if not settings.gpu_time or ready.engines is None:
        return None
    with stages.stage("GPU time") as advance:
        return bench_engines(
            ready.engines, ready.images, ready.macs, settings, plugin=plugin, advance=advance
        )


def _breakdown(ready: Ready, images: Array, settings: BenchSettings) -> Pair[dict[str, float]]:
    def kernels(path: Path) -> tuple[Kernel, ...]:
        return profile(path, {IMAGES: images}, runs=settings.profile_runs, threads=settings.threads)

    dense, pruned = kernels(ready.pair.dense.path), kernels(ready.pair.pruned.path)
    # The exporter's names are each file's own: those of selection mean nothing in the dense one.
    return Pair(breakdown(dense), breakdown(pruned, ready.sliced.selection))
