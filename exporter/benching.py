"""Measure a dense and a pruned ONNX model of ours beside each other: their speed, and what it goes into."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.benchmark import Hardware, environment
from exporter.benchmark.batch_sweep import AtBatch, Contestants, break_even, measure_batches, resized
from exporter.benchmark.breakdown import breakdown
from exporter.benchmark.settings import BenchSettings
from exporter.benchmark.timing import Clock
from exporter.errors import ArtefactError
from exporter.progress import Silent, Stages
from exporter.records import ModelSpec, Pair, Schedule, from_json
from exporter.runners.onnxruntime_profile import Kernel, profile
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.macs import MacCount, pruned_macs
from exporter.tensor_names import IMAGES, KEY_PREFIX

__all__ = ["Bench", "bench"]

logger = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bench:
    """A benchmark. `breakdown_ms` has milliseconds a run by class of operator, for each batch size in order.

    `break_even_batch` is None where pruning does not pay at the largest batch measured.
    """

    model: str
    method: str
    rho: float | None
    files: Pair[str]
    macs: Pair[int]
    batches: tuple[AtBatch, ...]
    break_even_batch: int | None
    breakdown_ms: tuple[Pair[dict[str, float]], ...]
    settings: BenchSettings
    hardware: Hardware


@dataclass(frozen=True)
class Subject:
    """An ONNX file of ours, and what its metadata says."""

    path: Path
    spec: ModelSpec
    schedule: Schedule
    weights_sha256: str

    @property
    def macs(self) -> MacCount:
        """Multiply-adds of one image."""
        return pruned_macs(self.spec, self.schedule.keep)


@dataclass(frozen=True)
class Sliced:
    """The twin of a pruned model that slices, and which nodes of the pruned one it does without."""

    model: bytes | None
    selection: frozenset[str]


NOT_SLICED = Sliced(None, frozenset())


def bench(
    files: Pair[Path],
    images: Array,
    settings: BenchSettings,
    stages: Stages | None = None,
    clock: Clock = time.perf_counter,
) -> Bench:
    """Measure both files on ONNX Runtime.

    Args:
        files: The dense and the pruned model, as `lower` made them.
        images: [n, 3, H, W], as the models take them.
        settings: Batch sizes, rounds, threads.
        stages: Shows where the job is.
        clock: Seconds, from any start.

    Raises:
        ArtefactError: A file is none of ours, is in the other's place, or is of another model.
    """
    stages = stages or Silent()
    with stages.stage("models"):
        pair = Pair(_subject(files.dense), _subject(files.pruned))
        _check(pair)
        sliced = _sliced(pair.pruned) if settings.selection_cost else NOT_SLICED
    with stages.stage(f"throughput, batches {', '.join(map(str, settings.batches))}") as advance:
        measured = []
        for each in measure_batches(_contestants(pair, sliced, settings), images, settings, clock):
            measured.append(each)
            advance(len(measured), len(settings.batches))
    breakdowns: tuple[Pair[dict[str, float]], ...] = ()
    if settings.profile_runs:
        with stages.stage("profile"):
            breakdowns = tuple(
                _breakdowns(pair, sliced, resized(images, n), settings) for n in settings.batches
            )
    schedule = pair.pruned.schedule
    return Bench(
        model=pair.pruned.spec.name,
        method=schedule.method,
        rho=schedule.rho,
        files=Pair(files.dense.name, files.pruned.name),
        macs=Pair(pair.dense.macs.total, pair.pruned.macs.total),
        batches=tuple(measured),
        break_even_batch=break_even(measured),
        breakdown_ms=breakdowns,
        settings=settings,
        hardware=environment(settings.threads),
    )


def _contestants(pair: Pair[Subject], sliced: Sliced, settings: BenchSettings) -> Contestants:
    wanted = sliced.model
    return Contestants(
        dense=OnnxRuntimeRunner(pair.dense.path, threads=settings.threads),
        pruned=OnnxRuntimeRunner(pair.pruned.path, threads=settings.threads),
        sliced=None if wanted is None else OnnxRuntimeRunner(wanted, name="sliced", threads=settings.threads),
        macs=Pair(pair.dense.macs, pair.pruned.macs),
    )


def _breakdowns(
    pair: Pair[Subject], sliced: Sliced, images: Array, settings: BenchSettings
) -> Pair[dict[str, float]]:
    def kernels(path: Path) -> tuple[Kernel, ...]:
        return profile(path, {IMAGES: images}, runs=settings.profile_runs, threads=settings.threads)

    dense, pruned = kernels(pair.dense.path), kernels(pair.pruned.path)
    # The exporter's names are each file's own: those of selection mean nothing in the dense one.
    return Pair(breakdown(dense), breakdown(pruned, sliced.selection))


def _subject(path: Path) -> Subject:
    """Through the runtime, so that a box without onnx can read it, too."""
    with OnnxRuntimeRunner(path) as runner:
        metadata = runner.metadata()
    texts = [metadata.get(KEY_PREFIX + key) for key in ("model", "schedule", "weights_sha256")]
    if None in texts:
        raise ArtefactError(str(path), "a model without our metadata", "an ONNX model that star-export made")
    spec, schedule, weights = map(str, texts)
    return Subject(
        path,
        from_json(ModelSpec, spec, source=str(path)),
        from_json(Schedule, schedule, source=str(path)),
        weights,
    )


def _check(pair: Pair[Subject]) -> None:
    if pair.dense.schedule.pruning_layers:
        raise ArtefactError(str(pair.dense.path), "a pruned model", "the dense one")
    if not pair.pruned.schedule.pruning_layers:
        raise ArtefactError(str(pair.pruned.path), "a model that drops no patch", "a pruned one")
    if (pair.dense.spec, pair.dense.weights_sha256) != (pair.pruned.spec, pair.pruned.weights_sha256):
        got = f"{pair.dense.spec.name} with other weights or shapes"
        raise ArtefactError(str(pair.dense.path), got, f"the dense model of {pair.pruned.path.name}")


def _sliced(pruned: Subject) -> Sliced:
    """Changing a graph takes onnx and all that lowering needs: a box without them leaves this part out."""
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
