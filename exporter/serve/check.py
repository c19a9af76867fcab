"""Compare the models of an export folder with PyTorch's recorded outputs, without PyTorch."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from exporter.core.base.artefact import Artefact
from exporter.core.base.large_onnx import load_whole
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME_WEBGPU, Runtime, Target
from exporter.core.base.tensor_names import (
    IMAGES,
    INSTRUMENTED,
    Array,
    instrumented_path,
)
from exporter.core.base.vocabulary import Precision
from exporter.core.lower.largest_values import largest_halves
from exporter.core.verify.checks import with_range
from exporter.core.verify.comparison import (
    Models,
    compare_lowered,
    in_batches,
    whole_batches,
)
from exporter.core.verify.playback_runner import PlaybackRunner
from exporter.core.verify.record import ParityReport
from exporter.core.verify.runner import PartRunner, Runner
from exporter.engines.choice import (
    RunSettings,
    require_runtime,
    runner_for,
    runtime_for,
)
from exporter.engines.manifest import EngineManifest, read_manifest
from exporter.engines.runner import engine_here
from exporter.serve.export_folder import REFERENCE, read_models, read_reference


@dataclass(frozen=True)
class FolderCheck:
    """The parity results of both models of a folder on one runtime.

    Engines are compared at every batch size that they were built for, which has kernels of its own: `parity` is
    that of the first, `engines` those of the others by batch size.
    """

    runtime: str
    parity: Pair[ParityReport]
    engines: dict[int, Pair[ParityReport]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether both models passed, at every batch size."""
        return all(
            parity.dense.passed and parity.pruned.passed
            for parity in (self.parity, *self.engines.values())
        )


def check_folder(folder: Path, settings: RunSettings) -> FolderCheck:
    """Compare the models of a folder with the recorded reference, on the runtime that will serve them.

    The reference outputs come from `reference.npz`; survivors are read and forced by the instrumented
    variants beside the pruned model. For TensorRT, the folder has the engines of `build`, which compute in their
    own precision; of files in fp16 for other runtimes the largest values are measured.
    """
    models, reference = read_models(folder), read_reference(folder / REFERENCE)
    target = models.pruned.target
    images, runtime = reference[IMAGES], runtime_for(target, settings)
    outputs = models.pruned.spec.outputs
    for model in (models.dense, models.pruned):
        require_runtime(model.path, {IMAGES: images[:1]}, target, settings)

    def both(batches: Iterable[Array]) -> Pair[ParityReport]:
        split = tuple(batches)
        dense = PlaybackRunner(reference, outputs, dense=True)
        return Pair(
            _compared(dense, models.dense, settings, split),
            _compared(
                PlaybackRunner(reference, outputs),
                models.pruned,
                settings,
                split,
            ),
        )

    if not runtime.engines:
        parity = both(in_batches(images))
        in_range = Pair(
            _in_range(parity.dense, models.dense, images),
            _in_range(parity.pruned, models.pruned, images),
        )
        return FolderCheck(runtime.name, in_range)
    # `build` gives the dense model's engine the same.
    first, *further = _manifest(models.pruned.path, runtime).settings.batches
    engines = {batch: both(whole_batches(images, batch)) for batch in further}
    return FolderCheck(runtime.name, both(whole_batches(images, first)), engines)


def _compared(
    playback: PlaybackRunner,
    model: Artefact,
    settings: RunSettings,
    batches: Iterable[Array],
) -> ParityReport:
    tracing, forced = (
        _instrumented(instrumented_path(model.path, role), model.target, settings)
        if model.prunes
        else None
        for role in INSTRUMENTED
    )
    shipped = runner_for(model.path, model.target, settings)
    spec = model.spec
    models = Models(playback, shipped, tracing, forced, spec.outputs, spec.class_names)
    return compare_lowered(models, model, batches, _precision(model, settings))


def _in_range(parity: ParityReport, model: Artefact, images: Array) -> ParityReport:
    if model.target.precision != Precision.FP16:
        return parity
    return with_range(parity, largest_halves(load_whole(model.path), images))


def _instrumented(path: Path, target: Target, settings: RunSettings) -> Runner:
    """Return a variant's runner. Its engine has few batch sizes: it takes a larger batch in parts."""
    runner = runner_for(path, target, settings)
    runtime = runtime_for(target, settings)
    if not runtime.engines:
        return runner
    return PartRunner(runner, _manifest(path, runtime).settings.batches)


def _precision(model: Artefact, settings: RunSettings) -> str:
    """Return the precision of a model's products: the target's, unless the runtime computes them in another."""
    target = model.target
    runtime = runtime_for(target, settings)
    if target.precision == Precision.FP16 and runtime == ONNXRUNTIME_WEBGPU:
        return "fp16 sums"
    if target.precision != Precision.FP32 or not runtime.engines:
        return target.precision
    return "tf32" if _manifest(model.path, runtime).settings.tf32 else target.precision


def _manifest(onnx: Path, runtime: Runtime) -> EngineManifest:
    return read_manifest(engine_here(onnx, runtime))
