"""Hold the models of an export folder to PyTorch's recorded answers, where there is neither PyTorch nor onnx."""

from dataclasses import dataclass
from pathlib import Path

from exporter.evaluation.parity import (
    BATCHES,
    ParityReport,
    compare,
    in_batches,
    tolerance_for,
    whole_batches,
)
from exporter.records import Schedule, load_json
from exporter.runtimes.choice import TENSORRT, RunSettings, require_runtime, runner_for, runtime_for
from exporter.runtimes.playback_runner import PlaybackRunner
from exporter.tensor_names import IMAGES, VARIANTS, variant_path
from exporter.workflows.export_folder import SCHEDULE, read_folder, read_reference, verify_checksums

__all__ = ["FolderCheck", "check_folder"]


@dataclass(frozen=True)
class FolderCheck:
    """Both results of a folder on one runtime."""

    runtime: str
    dense: ParityReport
    pruned: ParityReport

    @property
    def passed(self) -> bool:
        """Whether both models are their references here."""
        return self.dense.passed and self.pruned.passed


def check_folder(folder: Path, settings: RunSettings) -> FolderCheck:
    """The result of a folder on the runtime that will serve it.

    The reference is played back from `reference.npz`; survivors are read and forced through the variants that lie
    beside the pruned model.

    Args:
        folder: What `compile` left, and for TensorRT what `build` added.
        settings: The runtime.

    Raises:
        ArtefactError: The folder is none, or not the one that was sent.
        MissingDependencyError: The runtime is not installed.
    """
    files = read_folder(folder)
    verify_checksums(folder)
    reference, schedule = read_reference(files.reference), load_json(Schedule, folder / SCHEDULE)
    target, images, runtime = files.target, reference[IMAGES], runtime_for(files.target, settings)
    for path in (files.dense, files.pruned):
        require_runtime(path, {IMAGES: images[:1]}, target, settings)

    def result(playback: PlaybackRunner, path: Path, variants: bool) -> ParityReport:
        tracing, forced = (
            runner_for(variant_path(path, role), target, settings) if variants else None for role in VARIANTS
        )
        return compare(
            playback,
            runner_for(path, target, settings),
            tracing=tracing,
            forced=forced,
            # An engine takes the batches that it was built for.
            batches=whole_batches(images, *BATCHES) if runtime == TENSORRT else in_batches(images, BATCHES),
            tolerance=tolerance_for("fp32", target.precision),
            masses=schedule.masses if variants else {},
        )

    return FolderCheck(
        runtime,
        dense=result(PlaybackRunner(reference, dense=True), files.dense, variants=False),
        pruned=result(PlaybackRunner(reference), files.pruned, variants=bool(schedule.pruning_layers)),
    )
