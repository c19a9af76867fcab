"""Compare the models of an export folder with PyTorch's recorded outputs, without PyTorch and onnx."""

from dataclasses import dataclass
from pathlib import Path

from exporter.artefact import LoweredFile
from exporter.evaluation.parity import (
    BATCHES,
    ParityReport,
    compare,
    in_batches,
    tolerance_for,
    whole_batches,
)
from exporter.runtimes.choice import TENSORRT, RunSettings, require_runtime, runner_for, runtime_for
from exporter.runtimes.playback_runner import PlaybackRunner
from exporter.schedule.scorers import scorer_named
from exporter.tensor_names import IMAGES, VARIANTS, variant_path
from exporter.workflows.export_folder import read_folder, read_reference

__all__ = ["FolderCheck", "check_folder"]


@dataclass(frozen=True)
class FolderCheck:
    """The parity results of both models of a folder on one runtime."""

    runtime: str
    dense: ParityReport
    pruned: ParityReport

    @property
    def passed(self) -> bool:
        """Whether both models passed."""
        return self.dense.passed and self.pruned.passed


def check_folder(folder: Path, settings: RunSettings) -> FolderCheck:
    """Compare the models of a folder with the recorded reference, on the runtime that will serve them.

    The reference outputs come from `reference.npz`; survivors are read and forced by the instrumented variants
    beside the pruned model.

    Args:
        folder: An export folder that `compile` wrote; for TensorRT with the engines of `build`.
        settings: The runtime.

    Raises:
        ArtefactError: This is no export folder, or a file does not match its checksum.
        MissingDependencyError: The runtime is not installed.
    """
    found = read_folder(folder)
    reference, target = read_reference(found.reference), found.target
    images, runtime = reference[IMAGES], runtime_for(target, settings)
    outputs = found.models.pruned.artefact.spec.outputs
    for model in (found.models.dense, found.models.pruned):
        require_runtime(model.path, {IMAGES: images[:1]}, target, settings)

    def result(playback: PlaybackRunner, model: LoweredFile) -> ParityReport:
        path, artefact = model.path, model.artefact
        tracing, forced = (
            runner_for(variant_path(path, role), target, settings) if artefact.prunes else None
            for role in VARIANTS
        )
        return compare(
            playback,
            runner_for(path, target, settings),
            tracing=tracing,
            forced=forced,
            # An engine runs only the batch sizes that it was built for.
            batches=whole_batches(images, *BATCHES) if runtime == TENSORRT else in_batches(images, BATCHES),
            tolerance=tolerance_for("fp32", target.precision),
            masses=artefact.schedule.masses,
            pairs=scorer_named(artefact.schedule.scorer).pairs,
            outputs=artefact.spec.outputs,
        )

    return FolderCheck(
        runtime,
        dense=result(PlaybackRunner(reference, outputs, dense=True), found.models.dense),
        pruned=result(PlaybackRunner(reference, outputs), found.models.pruned),
    )
