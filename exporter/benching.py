"""Measure a dense and a pruned ONNX model of ours beside each other: their speed, and what it goes into."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.benchmark import Hardware, environment
from exporter.benchmark.batch_sweep import AtBatch, Contestants, break_even, measure_batches, resized
from exporter.benchmark.breakdown import breakdown
from exporter.benchmark.gpu_time import EngineBench
from exporter.benchmark.settings import BenchSettings
from exporter.benchmark.subjects import Subject, delivered_pair, read_pair
from exporter.benchmark.timing import Clock
from exporter.delivery import MODEL, SCHEDULE
from exporter.engine_benching import bench_engines, engines_of
from exporter.progress import Silent, Stages
from exporter.records import ModelSpec, Pair, Schedule, load_json
from exporter.runners.base import Runner
from exporter.runners.choice import (
    ONNXRUNTIME_CPU,
    PROVIDERS,
    TENSORRT,
    RunSettings,
    require_runtime,
    runner_for,
    runtime_for,
)
from exporter.runners.onnxruntime_profile import Kernel, profile
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.macs import MacCount
from exporter.targets import ONNXRUNTIME, Target
from exporter.tensor_names import IMAGES

__all__ = ["Bench", "bench"]

logger = logging.getLogger(__name__)

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
class Sliced:
    """The twin of a pruned model that slices, and which nodes of the pruned one it does without."""

    model: bytes | None
    selection: frozenset[str]


NOT_SLICED = Sliced(None, frozenset())


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
        name = runtime_for(target, runtime)
        on_cpu = name == ONNXRUNTIME_CPU
        pair, images = _pair(files, name), reference[IMAGES]
        for path in (files.dense, files.pruned):
            require_runtime(path, {IMAGES: images[:1]}, target, runtime)
        macs = Pair(pair.dense.macs(reference), pair.pruned.macs(reference))
        sliced = _sliced(pair.pruned) if settings.selection_cost and on_cpu else NOT_SLICED
        engines = engines_of(Pair(pair.dense.path, pair.pruned.path), settings) if name == TENSORRT else None
    with stages.stage(f"throughput, batches {', '.join(map(str, settings.batches))}") as advance:
        measured = []
        runners = Pair(*(runner_for(each.path, target, runtime) for each in (pair.dense, pair.pruned)))
        contestants = _contestants(runners, sliced, macs, settings)
        for each in measure_batches(contestants, images, settings, clock):
            measured.append(each)
            advance(len(measured), len(settings.batches))
    breakdowns = []
    if settings.profile_runs and on_cpu:
        with stages.stage("profile"):
            for batch in settings.batches:
                breakdowns.append(_breakdowns(pair, sliced.selection, resized(images, batch), settings))
    gpu = None
    if settings.gpu_time and engines is not None:
        with stages.stage("GPU time") as advance:
            gpu = bench_engines(engines, images, macs, settings, plugin=runtime.plugin, advance=advance)
    return Bench(
        model=pair.pruned.spec.name,
        runtime=name,
        method=pair.pruned.schedule.method,
        rho=pair.pruned.schedule.rho,
        files=Pair(files.dense.name, files.pruned.name),
        macs=Pair(macs.dense.total, macs.pruned.total),
        batches=tuple(measured),
        break_even_batch=break_even(measured),
        breakdown_ms=tuple(breakdowns),
        settings=settings,
        hardware=environment(settings.threads),
        gpu=gpu,
    )


def _contestants(
    runners: Pair[Runner], sliced: Sliced, macs: Pair[MacCount], settings: BenchSettings
) -> Contestants:
    plain: Runner | None = None
    if sliced.model is not None:
        plain = OnnxRuntimeRunner(sliced.model, name="the sliced model", threads=settings.threads)
    return Contestants(runners.dense, runners.pruned, plain, macs)


def _pair(files: Pair[Path], runtime: str) -> Pair[Subject]:
    """ONNX Runtime reads what a file says of itself; for other runtimes it is what lies in the folder."""
    if runtime in PROVIDERS:
        return read_pair(files)
    folder = files.pruned.parent
    return delivered_pair(files, load_json(ModelSpec, folder / MODEL), load_json(Schedule, folder / SCHEDULE))


def _breakdowns(
    pair: Pair[Subject], selection: frozenset[str], images: Array, settings: BenchSettings
) -> Pair[dict[str, float]]:
    def kernels(path: Path) -> tuple[Kernel, ...]:
        return profile(path, {IMAGES: images}, runs=settings.profile_runs, threads=settings.threads)

    dense, pruned = kernels(pair.dense.path), kernels(pair.pruned.path)
    # The exporter's names are each file's own: those of selection mean nothing in the dense one.
    return Pair(breakdown(dense), breakdown(pruned, selection))


def _sliced(pruned: Subject) -> Sliced:
    """Changing a graph takes onnx and all that lowering needs: a box without them leaves this part out.

    No slice stands for a-STAR's counts, which follow the images.
    """
    if pruned.schedule.adaptive:
        return NOT_SLICED
    try:
        import onnx  # noqa: PLC0415

        from exporter.lowering.passes.base import Facts  # noqa: PLC0415
        from exporter.lowering.twins import selection_nodes, sliced_twin  # noqa: PLC0415
    except ModuleNotFoundError as error:
        logger.warning("the selection cost is left out: it needs %s, in star-export[export]", error.name)
        return NOT_SLICED
    model = onnx.load(pruned.path)
    twin = sliced_twin(model, Facts(pruned.spec, pruned.schedule))
    return Sliced(twin.SerializeToString(), selection_nodes(model, twin))
