"""The steps of a compilation as functions: what the verbs of the command line call, and what a program can."""

from pathlib import Path

import numpy as np
import onnx
from torch import nn

from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.record import Calibration, CalibrationSettings, check_fits, load_calibration
from exporter.calibration.resize import resized_to
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, list_images, sample
from exporter.errors import ScheduleError
from exporter.lowering.pipeline import lower
from exporter.models.base import PrunableViT
from exporter.models.registry import ModelRequest, adapt, load
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.plan import keep_everything
from exporter.targets import target_named
from exporter.workflows.planning import measured_macs, plan, schedule_settings
from exporter.workflows.progress import Advance
from exporter.workflows.recipe import Recipe, needed

__all__ = [
    "calibrate",
    "dense",
    "eval_images",
    "export",
    "fitting_calibration",
    "load_model",
    "measured_macs",
    "model_request",
    "plan",
    "prune",
    "range_images",
    "read_calibration",
    "schedule_settings",
]

# Ranges settle within a few dozen images.
RANGE_IMAGES = 64


def model_request(recipe: Recipe) -> ModelRequest:
    """The part of a recipe that names the model."""
    return ModelRequest(
        name=needed(recipe.model, "--model", "a timm name or a bundled model"),
        checkpoint=recipe.checkpoint,
        num_classes=recipe.num_classes,
        model_kwargs=recipe.model_kwargs,
        preprocessing=recipe.preprocess,
    )


def load_model(recipe: Recipe, model: PrunableViT | nn.Module | None = None) -> PrunableViT:
    """The recipe's ViT, or the one that is given: an adapter as it is, a timm module behind its adapter.

    Raises:
        ModelError: The model is unknown or cannot be pruned.
        CheckpointError: The checkpoint is not this model's.
    """
    if isinstance(model, PrunableViT):
        return model
    if model is not None:
        return adapt(model, recipe.model or "vit", recipe.preprocess)
    return load(model_request(recipe), recipe.device)


def calibrate(
    vit: PrunableViT, recipe: Recipe, path: Path, on_progress: Advance | None = None
) -> Calibration:
    """Calibrate on the recipe's images into a file, or read the calibration that the recipe names.

    Interrupted and called again, it goes on where it stood.

    Raises:
        CalibrationError: The settings do not suit the model or the images, or the file is another model's.
        ImageError: There are no images.
    """
    given = read_calibration(vit, recipe)
    if given is not None:
        return given
    settings = CalibrationSettings(
        protocol=recipe.protocol,
        max_images=recipe.max_images,
        gamma=recipe.gamma,
        relevance=recipe.scorer in ("fused", "inter"),
        dtype=recipe.relevance_dtype,
        seed=recipe.seed,
    )
    folder = list_images(needed(recipe.images, "--images", "a folder of images"))
    return calibrate_to(path, vit, folder, settings, on_progress)


def read_calibration(vit: PrunableViT, recipe: Recipe) -> Calibration | None:
    """The calibration that the recipe names, None where it names none.

    Raises:
        ArtefactError: The file is no calibration.
        CalibrationError: It was made for another model, or for another input size and may not be interpolated.
    """
    if recipe.calibration is None:
        return None
    return fitting_calibration(recipe.calibration, recipe, vit.spec, vit.weights_sha256)


def fitting_calibration(path: Path, recipe: Recipe, spec: ModelSpec, weights_sha256: str = "") -> Calibration:
    """A calibration from a file, interpolated to this model's input size where the recipe wants that.

    Raises:
        ArtefactError: The file is no calibration.
        CalibrationError: It is not this model's; weights are not compared where the hash is "".
    """
    made = load_calibration(path)
    calibration = resized_to(made, spec) if recipe.interpolate else made
    check_fits(calibration, spec, weights_sha256 if calibration is made else "")
    return calibration


def prune(
    vit: PrunableViT,
    schedule: Schedule,
    calibration: Calibration | None = None,
    layout: str = "shrinking",
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


def export(pruned: PrunedViT, recipe: Recipe) -> onnx.ModelProto:
    """The ONNX model for the recipe's target and input.

    Raises:
        ModelError: The target is unknown, the model does not fit into one file, or INT8 has no images.
    """
    target = target_named(recipe.target)
    images = range_images(recipe, pruned.vit.spec) if target.takes_ranges else None
    return lower(pruned, target, recipe.input_kind, images)


def range_images(recipe: Recipe, spec: ModelSpec) -> np.ndarray | None:
    """Calibration images that INT8 takes the ranges of activations from; None where the recipe names none."""
    if recipe.images is None:
        return None
    files = sample(list_images(recipe.images), min(recipe.max_images, RANGE_IMAGES), recipe.seed).files
    return first_images(files, spec.preprocessing, recipe.input_kind, len(files))


def eval_images(recipe: Recipe, spec: ModelSpec) -> ImageFolder:
    """The images to compare and measure on: those of the recipe, drawn by its seed.

    Raises:
        ImageError: There are none.
    """
    place = needed(recipe.eval_images or recipe.images, "--images", "a folder of images")
    folder = list_images(place, num_classes=spec.num_classes, class_map=recipe.class_map)
    return sample(folder, recipe.max_eval_images, recipe.seed)
