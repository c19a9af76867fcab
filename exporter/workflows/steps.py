"""The steps of a compilation as functions: what the verbs of the command line call, and what a program can."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import nn

from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.record import Calibration, check_fits, load_calibration
from exporter.calibration.resize import resized_to
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, list_images, sample
from exporter.errors import ScheduleError
from exporter.files import PathLike
from exporter.lowering.pipeline import lower
from exporter.models.base import PrunableViT
from exporter.models.registry import ModelRequest, adapt, load
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.plan import keep_everything
from exporter.targets import Target
from exporter.vocabulary import InputKind, Layout
from exporter.workflows.progress import Advance
from exporter.workflows.recipe import needed
from exporter.workflows.requests import CalibrationSource, Images, Lowering

__all__ = [
    "calibrate",
    "dense",
    "eval_images",
    "export",
    "load_model",
    "prune",
    "range_images",
    "read_calibration",
]

# Ranges settle within a few dozen images.
RANGE_IMAGES = 64

FOR_ONNXRUNTIME = Lowering()

Array = np.ndarray[Any, Any]


def load_model(
    request: ModelRequest, device: str = "cpu", model: PrunableViT | nn.Module | None = None
) -> PrunableViT:
    """The ViT that is asked for, or the one that is given: an adapter as it is, a timm module behind its adapter.

    Raises:
        ModelError: The model is unknown or cannot be pruned.
        CheckpointError: The checkpoint is not this model's.
    """
    if isinstance(model, PrunableViT):
        return model
    if model is not None:
        return adapt(model, request.name or "vit", request.preprocessing)
    needed(request.name or None, "--model", "a timm name or a bundled model")
    return load(request, device)


def calibrate(
    vit: PrunableViT,
    source: CalibrationSource,
    images: Images,
    path: PathLike,
    on_progress: Advance | None = None,
) -> Calibration:
    """Calibrate on a folder of images into a file, or read the calibration that the source names.

    Interrupted and called again, it goes on where it stood.

    Raises:
        CalibrationError: The settings do not suit the model or the images, or the file is another model's.
        ImageError: There are no images.
    """
    given = read_calibration(source, vit.spec, vit.weights_sha256)
    if given is not None:
        return given
    folder = list_images(needed(images.images, "--images", "a folder of images"))
    return calibrate_to(Path(path), vit, folder, source.settings, on_progress)


def read_calibration(
    source: CalibrationSource, spec: ModelSpec, weights_sha256: str = ""
) -> Calibration | None:
    """The calibration that the source names, None where it names none; interpolated where that is allowed.

    Raises:
        ArtefactError: The file is no calibration.
        CalibrationError: It is not this model's; weights are not compared where the hash is "".
    """
    if source.path is None:
        return None
    made = load_calibration(source.path)
    calibration = resized_to(made, spec) if source.interpolate else made
    check_fits(calibration, spec, weights_sha256 if calibration is made else "")
    return calibration


def prune(
    vit: PrunableViT,
    schedule: Schedule,
    calibration: Calibration | None = None,
    layout: Layout | str = Layout.SHRINKING,
) -> PrunedViT:
    """The PyTorch reference of the pruned model; `layout` is how a-STAR's tokens lie in a batch.

    Raises:
        ScheduleError: The schedule is not this model's, or was made with other inter-layer scores.
    """
    inter = None if calibration is None else calibration.inter
    if calibration is not None and schedule.inter_sha256 not in ("", calibration.inter_sha256):
        got = f"inter-layer scores {calibration.inter_sha256[:12]}"
        raise ScheduleError("schedule", got, f"{schedule.inter_sha256[:12]}, which it was made with")
    return PrunedViT(vit, schedule, inter, layout)


def dense(vit: PrunableViT) -> PrunedViT:
    """The model as it was trained, in the same form: every layer keeps everything."""
    return PrunedViT(vit, keep_everything(vit.spec))


def export(
    pruned: PrunedViT, lowering: Lowering = FOR_ONNXRUNTIME, ranges: Array | None = None
) -> onnx.ModelProto:
    """The ONNX model for a target and an input; INT8 takes the ranges of activations from images (`range_images`).

    Raises:
        ModelError: The target cannot take the method or layout, the model does not fit into one file, or INT8
            has no images.
    """
    return lower(pruned, lowering.target, lowering.input_kind, ranges)


def range_images(images: Images, spec: ModelSpec, input_kind: InputKind, *targets: Target) -> Array | None:
    """Calibration images for the ranges of activations; None where there are none, or no target needs them."""
    if images.images is None or not any(target.takes_ranges for target in targets):
        return None
    files = sample(list_images(images.images), min(images.max_images, RANGE_IMAGES), images.seed).files
    return first_images(files, spec.preprocessing, input_kind, len(files))


def eval_images(images: Images, spec: ModelSpec) -> ImageFolder:
    """The images to compare and measure on, drawn by the seed.

    Raises:
        ImageError: There are none.
    """
    place = needed(images.eval_images or images.images, "--images", "a folder of images")
    folder = list_images(place, num_classes=spec.num_classes, class_map=images.class_map)
    return sample(folder, images.max_eval_images, images.seed)
