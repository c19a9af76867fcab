"""Benchmark a dense and a pruned ONNX model together: throughput, and time by operator class."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile
from exporter.errors import UserError
from exporter.evaluation.benchmark import Hardware, environment
from exporter.evaluation.benchmark.batch_sweep import (
    NOT_SLICED,
    AtBatch,
    BenchModels,
    BenchSettings,
    Sliced,
    break_even,
    filled_batch,
    measure_batches,
    sliced_of,
)
from exporter.evaluation.benchmark.breakdown import breakdown
from exporter.evaluation.benchmark.gpu_time import EngineBench, Engines
from exporter.evaluation.benchmark.timing import Clock
from exporter.evaluation.survivors import useful_macs
from exporter.records import Pair
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import (
    ONNXRUNTIME_CPU,
    TENSORRT,
    RunSettings,
    require_runtime,
    runner_for,
    runtime_for,
)
from exporter.runtimes.onnxruntime.profile import Kernel, profile
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.schedule.macs import MacCount
from exporter.tensor_names import IMAGES
from exporter.workflows.folders.engine_times import bench_engines, engines_of
from exporter.workflows.memory import check_batches
from exporter.workflows.progress import Silent, Stages

__all__ = ["Bench", "bench"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bench:
    """The result of a benchmark. `breakdown_ms`: milliseconds per run by operator class, for each batch size.

    `break_even_batch` is None if the pruned model is not faster at the largest batch measured. `gpu` is the GPU
    time, None unless engines ran; `gpu_failure` says why it could not be measured where the rest could.
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
    gpu_failure: str = ""

    def __repr__(self) -> str:
        faster = ", ".join(f"{each.comparison.speedup:.2f} × at batch {each.batch}" for each in self.batches)
        return f"<Bench {self.model}, {self.method}, {self.runtime}: {faster}>"


@dataclass(frozen=True)
class Setup:
    """The subjects of a benchmark: both models on their runtime, the sliced variant, and the engines, if any."""

    runtime: str
    models: Pair[LoweredFile]
    images: Array
    macs: Pair[MacCount]
    runners: Pair[Runner]
    sliced: Sliced
    engines: Engines | None


def bench(
    models: Pair[LoweredFile],
    reference: Mapping[str, Array],
    settings: BenchSettings,
    stages: Stages | None = None,
    clock: Clock = time.perf_counter,
    *,
    runtime: RunSettings | None = None,
) -> Bench:
    """Measure both files on one runtime.

    Args:
        models: The dense and the pruned file, from `read_pair` or `read_folder`.
        reference: `images` [n, 3, H, W], as the models take them; and the patches that an a-STAR model keeps.
        settings: Batch sizes, rounds, threads.
        stages: Shows progress.
        clock: Returns seconds, from any start.
        runtime: By default the target's; TensorRT takes the engines in the folder of the files.

    Raises:
        ArtefactError: The reference does not belong to the a-STAR model.
        UserError: The runtime is missing, or runs part of a model elsewhere.
    """
    stages, runtime = stages or Silent(), runtime or RunSettings(threads=settings.threads)
    check_batches("--batches", settings.batches, models.pruned.artefact.spec)
    with stages.stage("models"):
        setup = _setup(models, reference, settings, runtime)
    measured = _throughputs(setup, settings, stages, clock)
    breakdowns = _breakdowns(setup, settings, stages)
    gpu, failure = _gpu_times(setup, settings, runtime.plugin, stages)
    pruned = models.pruned.artefact
    return Bench(
        model=pruned.spec.name,
        runtime=setup.runtime,
        method=pruned.schedule.method,
        rho=pruned.schedule.rho,
        files=Pair(models.dense.path.name, models.pruned.path.name),
        macs=Pair(setup.macs.dense.total, setup.macs.pruned.total),
        batches=measured,
        break_even_batch=break_even(measured),
        breakdown_ms=breakdowns,
        settings=settings,
        hardware=environment(settings.threads),
        gpu=gpu,
        gpu_failure=failure,
    )


def _setup(
    models: Pair[LoweredFile], reference: Mapping[str, Array], settings: BenchSettings, runtime: RunSettings
) -> Setup:
    target, images = models.pruned.artefact.target, reference[IMAGES]
    name, both = runtime_for(target, runtime), (models.dense, models.pruned)
    for each in both:
        require_runtime(each.path, {IMAGES: images[:1]}, target, runtime)
    sliced = sliced_of(models.pruned) if settings.selection_cost and name == ONNXRUNTIME_CPU else NOT_SLICED
    return Setup(
        runtime=name,
        models=models,
        images=images,
        macs=Pair(*(useful_macs(each, reference) for each in both)),
        runners=Pair(*(runner_for(each.path, target, runtime) for each in both)),
        sliced=sliced,
        engines=engines_of(Pair(*(each.path for each in both)), settings) if name == TENSORRT else None,
    )


def _throughputs(setup: Setup, settings: BenchSettings, stages: Stages, clock: Clock) -> tuple[AtBatch, ...]:
    plain: Runner | None = None
    if setup.sliced.model is not None:
        plain = OnnxRuntimeRunner(setup.sliced.model, name="the sliced model", threads=settings.threads)
    models = BenchModels(setup.runners.dense, setup.runners.pruned, plain, setup.macs)
    measured = []
    with stages.stage(f"throughput, batches {', '.join(map(str, settings.batches))}") as advance:
        for each in measure_batches(models, setup.images, settings, clock):
            measured.append(each)
            advance(len(measured), len(settings.batches))
    return tuple(measured)


def _breakdowns(setup: Setup, settings: BenchSettings, stages: Stages) -> tuple[Pair[dict[str, float]], ...]:
    """Return the breakdown for each batch; () on a runtime whose kernels are not profiled."""
    if not settings.profile_runs or setup.runtime != ONNXRUNTIME_CPU:
        return ()
    with stages.stage("profile"):
        return tuple(
            _breakdown(setup, filled_batch(setup.images, batch), settings) for batch in settings.batches
        )


def _gpu_times(
    setup: Setup, settings: BenchSettings, plugin: Path | None, stages: Stages
) -> tuple[EngineBench | None, str]:
    """Return the GPU time, or why it cannot be measured: what was measured before it stays."""
    if not settings.gpu_time or setup.engines is None:
        return None, ""
    try:
        with stages.stage("GPU time") as advance:
            return bench_engines(
                setup.engines, setup.images, setup.macs, settings, plugin=plugin, advance=advance
            ), ""
    except UserError as error:
        return None, str(error)


def _breakdown(setup: Setup, images: Array, settings: BenchSettings) -> Pair[dict[str, float]]:
    def kernels(path: Path) -> tuple[Kernel, ...]:
        return profile(path, {IMAGES: images}, runs=settings.profile_runs, threads=settings.threads)

    dense, pruned = kernels(setup.models.dense.path), kernels(setup.models.pruned.path)
    # Node names differ between the files: those of the selection mean nothing in the dense model.
    return Pair(breakdown(dense), breakdown(pruned, setup.sliced.selection))
