"""Benchmark a dense and a pruned model together: throughput, time by operator class, and engines' GPU time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.machine import Hardware, environment
from exporter.core.base.progress import SILENT, Advance, Stages
from exporter.core.base.records import Pair, Schedule
from exporter.core.base.targets import Runtime
from exporter.core.base.tensor_names import (
    IMAGES,
    SLICED,
    Array,
    count_name,
    instrumented_path,
)
from exporter.core.schedule.macs import mean_macs, schedule_macs
from exporter.core.verify.decisions import patches_left
from exporter.core.verify.onnxruntime_runner import Kernel, OnnxRuntimeRunner, profile
from exporter.engines.choice import (
    RunSettings,
    require_runtime,
    runner_for,
    runtime_for,
)
from exporter.engines.manifest import Built
from exporter.engines.runner import engine_here
from exporter.engines.trtexec import require_program
from exporter.measure.batch_sweep import (
    NOT_SLICED,
    AtBatch,
    BenchSettings,
    breakdown,
    filled_batch,
    sliced_of,
    time_batches,
)
from exporter.measure.benchmark import Clock
from exporter.measure.gpu_time import (
    EngineFile,
    Engines,
    Run,
    engine_files,
    measure_engines,
)
from exporter.serve.export_folder import (
    REFERENCE,
    add_raw_images,
    read_reference,
    save_raw_images,
)

# For the breakdown by class of operator.
PROFILED_RUNS = 5


@dataclass(frozen=True)
class Bench:
    """The result of a benchmark: both models at each batch size, by the clock of the host.

    `gpu` has the same of engines by the clock of the GPU, `built` the machine that they were built on; empty and
    None unless engines ran. `gpu_failure` says why they could not be measured so, where the rest could.
    """

    model: str
    runtime: str
    schedule: Schedule
    files: Pair[str]
    macs: Pair[int]
    batches: tuple[AtBatch, ...]
    settings: BenchSettings
    hardware: Hardware
    gpu: tuple[AtBatch, ...] = ()
    built: Built | None = None
    gpu_failure: str = ""

    @property
    def lacks_selection(self) -> bool:
        """Whether the selection cost is a ratio of time that was not measured; a-STAR has none."""
        return not self.schedule.adaptive and all(
            at.selection is None for at in self.batches
        )

    def __repr__(self) -> str:
        faster = ", ".join(
            f"{times.speed_up.median:.2f} × at batch {times.batch}"
            for times in self.batches
        )
        return f"<Bench {self.model}, {self.schedule.method}, {self.runtime}: {faster}>"


def bench(
    models: Pair[Artefact],
    reference: Mapping[str, Array],
    settings: BenchSettings,
    stages: Stages = SILENT,
    clock: Clock = time.perf_counter,
    *,
    runtime: RunSettings | None = None,
) -> Bench:
    """Measure both files on one runtime.

    `reference` has `images` [n, 3, H, W], as the models take them, and the patches that an a-STAR model keeps
    of each. The runtime is by default the target's; TensorRT takes the engines in the folder of the files.
    """
    runtime = runtime or RunSettings()
    pruned, images = models.pruned, reference[IMAGES]
    program = runtime_for(pruned.target, runtime)
    with stages.stage("models"):
        for model in (models.dense, models.pruned):
            require_runtime(model.path, {IMAGES: images[:1]}, pruned.target, runtime)
        macs = Pair(
            useful_macs(models.dense, reference), useful_macs(models.pruned, reference)
        )
        engines = _engines(models, program, settings) if program.engines else None
    mac_ratio = macs.dense / macs.pruned
    batches = _by_host(models, images, mac_ratio, settings, runtime, stages, clock)
    gpu: tuple[AtBatch, ...] = ()
    failure = ""
    if engines is not None and settings.gpu_time:
        try:
            with stages.stage("GPU time") as advance:
                gpu = _by_gpu(
                    engines, images, mac_ratio, settings, runtime.plugin, advance
                )
        except UserError as error:  # what was measured before it stays
            failure = str(error)
    return Bench(
        model=pruned.spec.name,
        runtime=program.name,
        schedule=pruned.schedule,
        files=Pair(models.dense.path.name, models.pruned.path.name),
        macs=macs,
        batches=batches,
        settings=settings,
        hardware=environment(runtime.threads),
        gpu=gpu,
        built=_any(engines).manifest.built if engines is not None and gpu else None,
        gpu_failure=failure,
    )


def useful_macs(model: Artefact, reference: Mapping[str, Array]) -> int:
    """Return the multiply-adds per image; under a-STAR, the mean of the useful ones over the reference's images."""
    spec, schedule = model.spec, model.schedule
    if not schedule.adaptive:
        return schedule_macs(spec, schedule).total
    if not reference.keys() >= {count_name(layer) for layer in schedule.pruning_layers}:
        raise ArtefactError(
            "the reference", "no survivors of a-STAR", f"those of {model.path.name}"
        )
    left = patches_left(reference, spec.depth, spec.num_patches)
    return mean_macs(spec, left, schedule).total


def _by_host(  # noqa: PLR0917  (all of them are measured with)
    models: Pair[Artefact],
    images: Array,
    mac_ratio: float,
    settings: BenchSettings,
    runtime: RunSettings,
    stages: Stages,
    clock: Clock,
) -> tuple[AtBatch, ...]:
    """Measure throughput, and on ONNX Runtime's CPU provider the time by class of operator."""
    target, measured = models.pruned.target, list[AtBatch]()
    on_cpu = runtime_for(target, runtime).profiled
    sliced = sliced_of(models.pruned) if on_cpu else NOT_SLICED
    runners = {
        role: runner_for(file.path, target, runtime)
        for role, file in vars(models).items()
    }
    if sliced.model is not None:
        runners["sliced"] = OnnxRuntimeRunner(
            sliced.model, name="the sliced model", threads=runtime.threads
        )
    batches = ", ".join(map(str, settings.batches))
    with stages.stage(f"throughput, batches {batches}") as advance:
        for times in time_batches(
            runners,
            images,
            settings.batches,
            settings.rounds,
            warmup=settings.warmup,
            clock=clock,
            on_progress=advance,
        ):
            measured.append(AtBatch.of(times, mac_ratio))
    if not on_cpu:
        return tuple(measured)
    with stages.stage("profile"):
        return _profiled(measured, models, images, runtime.threads, sliced.selection)


def _profiled(
    measured: Sequence[AtBatch],
    models: Pair[Artefact],
    images: Array,
    threads: int,
    selection: frozenset[str],
) -> tuple[AtBatch, ...]:
    """Return the measurements with the time by class of operator."""

    def kernels(model: Artefact, batch: int) -> tuple[Kernel, ...]:
        feed = {IMAGES: filled_batch(images, batch)}
        return profile(model.path, feed, runs=PROFILED_RUNS, threads=threads)

    def by_class(batch: int) -> Pair[dict[str, float]]:
        # Node names differ between the files: those of the selection mean nothing in the dense model.
        dense, pruned = kernels(models.dense, batch), kernels(models.pruned, batch)
        return Pair(breakdown(dense), breakdown(pruned, selection))

    return tuple(
        replace(times, breakdown_ms=by_class(times.batch)) for times in measured
    )


def _engines(models: Pair[Artefact], tool: Runtime, settings: BenchSettings) -> Engines:
    """Return the engines of both files, after checking that they can run every batch.

    The sliced variant's are there if `build` built them.
    """
    files = {"dense": models.dense.path, "pruned": models.pruned.path}
    sliced = instrumented_path(models.pruned.path, SLICED)
    # It has no engines of one batch size each.
    if not settings.one_profile and engine_here(sliced, tool).is_file():
        files["sliced"] = sliced
    return engine_files(files, tool, settings.batches, one_profile=settings.one_profile)


def _any(engines: Engines) -> EngineFile:
    """Return one of the pruned engines: all were built in one folder by one machine."""
    return next(iter(engines.values()))["pruned"]


def _by_gpu(  # noqa: PLR0917  (all of them are measured with)
    engines: Engines,
    images: Array,
    mac_ratio: float,
    settings: BenchSettings,
    plugin: Path | None,
    advance: Advance,
) -> tuple[AtBatch, ...]:
    """Measure all engines at each batch, on raw images in a temporary folder.

    The commands that are shown read those of the export folder, which gets what it lacks.
    """
    first = _any(engines)
    measured = list[AtBatch]()
    require_program(first.manifest.settings.tool)
    folder = first.onnx.parent
    if (folder / REFERENCE).is_file():
        recorded = read_reference(folder / REFERENCE)[IMAGES]
        add_raw_images(recorded, settings.batches, folder)
    with TemporaryDirectory(prefix="star-export-") as place:
        save_raw_images(images, settings.batches, Path(place))
        run = Run(images.shape[1:], settings, plugin, Path(place))
        for at_batch in measure_engines(engines, mac_ratio, run):
            measured.append(at_batch)
            advance(len(measured), len(settings.batches))
    return tuple(measured)
