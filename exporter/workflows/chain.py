"""The chain of a compilation as functions of objects: what `compile` does from a recipe, step by step.

Each takes the model first, then what is done with it. Where images belong, a folder, an array or a loader stands.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import nn

from exporter.artefact import read_pair
from exporter.calibration.calibrate import calibrate as calibrated
from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.record import Calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.evaluation.benchmark.batch_sweep import BenchSettings
from exporter.evaluation.parity import ParityReport
from exporter.evaluation.parity.reference import check as check_lowered
from exporter.evaluation.parity.reference import load_onnx
from exporter.files import PathLike
from exporter.lowering.pipeline import save_onnx
from exporter.lowering.verify import artefact_of
from exporter.models.base import PrunableViT
from exporter.models.registry import ModelRequest
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Pair, Schedule
from exporter.schedule.plan import ScheduleSettings
from exporter.targets import target_named
from exporter.tensor_names import IMAGES
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.any_images import AnyImages, array_of, folder_of
from exporter.workflows.folders.bench import Bench
from exporter.workflows.folders.bench import bench as bench_pair
from exporter.workflows.progress import Advance, Stages
from exporter.workflows.recipes import planning
from exporter.workflows.recipes.amount import Amount, Rho
from exporter.workflows.recipes.requests import Lowering

__all__ = ["bench", "calibrate", "check", "export", "load_model", "plan", "save"]

Array = np.ndarray[Any, Any]


def load_model(
    model: str | ModelRequest | nn.Module | PrunableViT, device: str = "cpu", name: str = "vit"
) -> PrunableViT:
    """Return a ViT behind its adapter.

    Args:
        model: A name, a request with a checkpoint and arguments, or a module of a supported family; the module is
            copied, and never changed. An adapter is returned as it is.
        device: Where a model that is loaded by name computes.
        name: The name of a module in artefacts.

    Raises:
        ModelError: The model is unknown or cannot be pruned.
        CheckpointError: The checkpoint does not fit the model.
    """
    if isinstance(model, PrunableViT | nn.Module):
        return steps.load_model(ModelRequest(name), device, model)
    return steps.load_model(ModelRequest(model) if isinstance(model, str) else model, device)


def calibrate(
    vit: PrunableViT,
    images: AnyImages,
    settings: CalibrationSettings | None = None,
    *,
    out: PathLike | None = None,
    on_progress: Advance | None = None,
) -> Calibration:
    """Measure inter-layer importance and ACS on images.

    Args:
        vit: The unpruned model.
        images: Of a folder and an array, `settings.max_images` are drawn by the seed; of a loader the first are
            taken.
        settings: What to compute, and from how many images.
        out: A file to write; an interrupted calibration continues from it when called again.
        on_progress: Called with the number of images done, and the total.

    Raises:
        CalibrationError: The settings do not suit the model or the number of images.
        ImageError: There are no images, or they are not the model's input.
    """
    settings = settings or CalibrationSettings()
    most = settings.max_images if isinstance(settings.max_images, int) else None
    folder = folder_of(images, vit.spec, most)
    if out is None:
        return calibrated(vit, folder, settings, on_progress=on_progress)
    return calibrate_to(Path(out), vit, folder, settings, on_progress)


def plan(
    vit: PrunableViT | ModelSpec,
    amount: float | Amount,
    calibration: Calibration | None = None,
    settings: ScheduleSettings | None = None,
) -> Schedule:
    """Return how many patches each layer keeps.

    Args:
        vit: The unpruned model, or its shape.
        amount: rho, or another form: `Rho`, `MacShare`, `Rates`, `Given`.
        calibration: STAR's rates follow from its ACS; ToMe needs none.
        settings: The method, and how patches are scored; by default STAR with a calibration, else ToMe.

    Raises:
        RecipeError: rho is outside (0, 1].
        ScheduleError: The amount is out of reach, or needs a calibration or measurements.
    """
    settings = settings or ScheduleSettings()
    if settings.method is None and calibration is not None:
        settings = replace(settings, method=Method.STAR)
    spec = vit.spec if isinstance(vit, PrunableViT) else vit
    wanted = Rho(float(amount)) if isinstance(amount, int | float) else amount
    return planning.plan(wanted, planning.Planner.of(spec, settings, calibration))


def export(
    pruned: PrunedViT, lowering: Lowering | str | None = None, images: AnyImages | None = None
) -> onnx.ModelProto:
    """Return the ONNX model.

    Args:
        pruned: The pruned model, or the `dense` one.
        lowering: The name of a target, or a target with the kind of its input; by default ONNX Runtime in fp32.
        images: What INT8 takes its activation ranges from.

    Raises:
        ModelError: There is no such target, it does not support the method or layout, the model does not fit into
            one file, or images for INT8 are missing.
    """
    if isinstance(lowering, str):
        lowering = Lowering(target_named(lowering), pruned.layout)
    lowering = lowering or Lowering(layout=pruned.layout)
    ranges = None if images is None else array_of(images, pruned.vit.spec, lowering.input_kind)
    return steps.export(pruned, lowering, ranges)


def save(model: onnx.ModelProto, path: PathLike) -> Path:
    """Write an ONNX model into one file, and return its path.

    Raises:
        OutputError: The place cannot be written.
    """
    save_onnx(model, Path(path))
    return Path(path)


def check(
    pruned: PrunedViT, model: onnx.ModelProto | PathLike, images: AnyImages, *, threads: int = 0
) -> ParityReport:
    """Compare a lowered model with PyTorch on up to 64 images, on its target's runtime on the CPU.

    Args:
        pruned: The model that was lowered.
        model: The lowered one, or its file.
        images: Real images.
        threads: CPU threads of the runtime; 0 is one per physical core.

    Raises:
        ArtefactError: star-export did not make the model.
        ParityError: There is nothing to compare.
    """
    lowered = model if isinstance(model, onnx.ModelProto) else load_onnx(Path(model))
    kind = artefact_of(lowered).input_kind
    return check_lowered(pruned, lowered, array_of(images, pruned.vit.spec, kind), threads=threads)


def bench(
    dense: PathLike,
    pruned: PathLike,
    images: AnyImages | Mapping[str, Array],
    settings: BenchSettings | None = None,
    *,
    stages: Stages | None = None,
) -> Bench:
    """Measure a dense and a pruned file, interleaved, on their target's runtime.

    Args:
        dense: The file of the dense model.
        pruned: The file of the pruned one.
        images: Real images; for a-STAR the arrays of an export folder's reference.npz.
        settings: Batch sizes, rounds, threads.
        stages: Shows progress.

    Raises:
        ArtefactError: star-export did not make a file, or they do not belong together.
        UserError: The runtime is missing.
    """
    models = read_pair(Pair(Path(dense), Path(pruned)))
    artefact = models.pruned.artefact
    reference = (
        images
        if isinstance(images, Mapping)
        else {IMAGES: array_of(images, artefact.spec, artefact.input_kind)}
    )
    return bench_pair(models, reference, settings or BenchSettings(), stages)
