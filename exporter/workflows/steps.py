"""The steps of a compilation as functions, for the command line and for programs."""

import logging
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import nn

from exporter.calibration import draw
from exporter.calibration.calibrate import calibrate_to, resized_to
from exporter.calibration.record import Calibration, check_fits, load_calibration
from exporter.data.batches import first_images
from exporter.data.class_map import MAP_HINT
from exporter.data.images import ImageFolder, sample
from exporter.data.source import class_mismatch, images_at
from exporter.depth.checkpoint import load_vit
from exporter.errors import ScheduleError
from exporter.evaluation.benchmark import VNNI, cpu_lacks
from exporter.files import PathLike
from exporter.lowering.pipeline import lower
from exporter.models import outputs
from exporter.models.base import PrunableViT
from exporter.models.border import check_border
from exporter.models.huggingface.instances import is_instance
from exporter.models.identity import read_identity
from exporter.models.registry import ModelRequest, adapt
from exporter.models.weights import check_finite
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.plan import keep_everything
from exporter.targets import ONNXRUNTIME_INT8, OPENVINO, OPENVINO_INT8, Target
from exporter.vocabulary import InputKind, Layout
from exporter.workflows.progress import Advance
from exporter.workflows.recipes.recipe import A_MODEL, needed
from exporter.workflows.recipes.requests import CalibrationSource, Images, Lowering

__all__ = [
    "calibrate",
    "dense",
    "eval_images",
    "export",
    "load_model",
    "prune",
    "range_images",
    "read_calibration",
    "warn_where_slow",
    "warn_where_unsettled",
    "with_class_names",
    "with_outputs",
]

# Activation ranges settle within a few dozen images.
RANGE_IMAGES = 64

FOR_ONNXRUNTIME = Lowering()

Array = np.ndarray[Any, Any]

logger = logging.getLogger(__name__)


def load_model(
    request: ModelRequest, device: str = "cpu", model: PrunableViT | nn.Module | None = None
) -> PrunableViT:
    """Load the requested ViT, or adapt the given one: an adapter as it is, a copy of a module in its adapter.

    A module is copied since an adapter freezes it and puts it in eval mode: the caller's stays as it is. What it
    computes is the reference of its adapter.

    Raises:
        ModelError: The model is unknown, cannot be pruned, or computes something else than its adapter.
        CheckpointError: The checkpoint does not fit the model, or a weight is not finite.
    """
    if isinstance(model, PrunableViT):
        if not model.faithful:
            check_border(model)
        return model
    if model is not None:
        name = request.name or "vit"
        check_finite(model.state_dict(), name)
        own = deepcopy(model).eval()
        vit = adapt(own, name, request.preprocessing, request.text_embeddings)
        check_border(vit, None if request.text_embeddings and not is_instance(own) else own)
        return vit
    known = request.name or (request.checkpoint and read_identity(request.checkpoint))
    needed(known or None, "--model", A_MODEL)
    return load_vit(request, device)


def calibrate(
    vit: PrunableViT,
    source: CalibrationSource,
    images: Images,
    path: PathLike,
    on_progress: Advance | None = None,
    *,
    keep_sums: bool = False,
) -> Calibration:
    """Calibrate on a folder of images into a file, or read the calibration that the source names.

    An interrupted calibration continues when called again; with `keep_sums` a finished one is read again too.

    Raises:
        CalibrationError: The settings do not suit the model or the images, or the file is of another model.
        ImageError: There are no images.
    """
    given = read_calibration(source, vit.spec, vit.weights_sha256)
    if given is not None:
        return given
    folder = images_at(needed(images.images, "--images", "a folder of images"))
    return calibrate_to(Path(path), vit, folder, source.settings, on_progress, keep_sums=keep_sums)


def read_calibration(
    source: CalibrationSource, spec: ModelSpec, weights_sha256: str = ""
) -> Calibration | None:
    """Return the calibration that the source has, None if it has none; interpolate it if that is allowed.

    Raises:
        ArtefactError: The file is no calibration.
        CalibrationError: It is of another model; weights are not compared if the hash is "".
    """
    if source.restored is not None:
        # It was measured with the weights before they were trained further.
        check_fits(source.restored, spec, "")
        return source.restored
    if source.path is None:
        return None
    made = load_calibration(source.path)
    calibration = resized_to(made, spec) if source.interpolate else made
    check_fits(calibration, spec, weights_sha256 if calibration is made else "")
    return calibration


def with_outputs(
    vit: PrunableViT, names: Sequence[str], calibration: Calibration | None = None
) -> tuple[PrunableViT, Calibration | None]:
    """Return the model with the outputs of these names, and its calibration without the layers that none needs.

    Raises:
        ModelError: The model has no such output, or one is named twice.
    """
    chosen = outputs.with_outputs(vit, names)
    return chosen, None if calibration is None else calibration.of_first(chosen.spec.depth)


def with_class_names(vit: PrunableViT, images: ImageFolder | None) -> PrunableViT:
    """Return the model with the names of the images' classes, if it knows none and each of its classes has one."""
    names, count = {} if images is None else images.class_names, vit.spec.num_classes
    if vit.spec.class_names or not count or set(names) != set(range(count)):
        return vit
    named = copy(vit)
    named.spec = replace(vit.spec, class_names=tuple(names[index] for index in range(count)))
    return named


def prune(
    vit: PrunableViT,
    schedule: Schedule,
    calibration: Calibration | None = None,
    layout: Layout | str = Layout.SHRINKING,
) -> PrunedViT:
    """Return the PyTorch reference of the pruned model; `layout` is the layout of a-STAR's tokens in a batch.

    Raises:
        ScheduleError: The schedule is of another model, or was made with other inter-layer scores.
    """
    inter = None if calibration is None else calibration.inter
    if calibration is not None and schedule.inter_sha256 not in ("", calibration.inter_sha256):
        got = f"inter-layer scores {calibration.inter_sha256[:12]}"
        raise ScheduleError("schedule", got, f"{schedule.inter_sha256[:12]}, which it was made with")
    return PrunedViT(vit, schedule, inter, layout)


def warn_where_unsettled(schedule: Schedule, calibration: Calibration | None) -> None:
    """Log one line if halves of the calibration's images disagree in a layer that prunes by inter-layer scores."""
    if calibration is not None and schedule.inter_sha256:
        images = calibration.record.images
        draw.warn_where_unsettled(calibration.overlap, schedule.pruning_layers, images)


def warn_where_slow(*targets: Target) -> None:
    """Log one line if INT8 for OpenVINO is among the targets, and this CPU makes it slower than fp32.

    With AVX-512 it is faster, also without VNNI.
    """
    if OPENVINO_INT8 in targets and cpu_lacks("avx512f", *VNNI):
        logger.warning(
            "this CPU has no VNNI and no AVX-512: %s is slower than %s here; %s is faster",
            *(each.name for each in (OPENVINO_INT8, OPENVINO, ONNXRUNTIME_INT8)),
        )


def dense(vit: PrunableViT) -> PrunedViT:
    """Return the unpruned model as a `PrunedViT`: every layer keeps all patches."""
    return PrunedViT(vit, keep_everything(vit.spec))


def export(
    pruned: PrunedViT, lowering: Lowering = FOR_ONNXRUNTIME, ranges: Array | None = None
) -> onnx.ModelProto:
    """Return the ONNX model for a target and an input; INT8 needs images for activation ranges (`range_images`).

    Raises:
        ModelError: The target does not support the method or layout, the model does not fit into one file, or
            images for INT8 are missing.
    """
    return lower(pruned, lowering.target, lowering.input_kind, ranges)


def range_images(images: Images, spec: ModelSpec, input_kind: InputKind, *targets: Target) -> Array | None:
    """Return calibration images for INT8 activation ranges; None if there are none or no target needs them."""
    if images.images is None:
        return None
    folder = images_at(images.images)
    if not any(target.takes_ranges for target in targets):
        return None
    most = RANGE_IMAGES if images.max_images == "auto" else min(images.max_images, RANGE_IMAGES)
    files = sample(folder, most, images.seed).files
    return first_images(files, spec.preprocessing, input_kind, len(files))


def eval_images(images: Images, spec: ModelSpec) -> ImageFolder:
    """Return the images to compare and measure on, drawn by the seed.

    Raises:
        ImageError: There are no images.
    """
    place = needed(images.eval_images or images.images, "--images", "a folder of images")
    folder = images_at(place, spec.num_classes, images.class_map, names=spec.class_names)
    found = class_mismatch(folder, spec.num_classes)
    if found:
        text = "%s: %s, and the model has %d classes: accuracy is not measured (%s)"
        logger.warning(text, place, found, spec.num_classes, MAP_HINT)
    return sample(folder, images.max_eval_images, images.seed)
