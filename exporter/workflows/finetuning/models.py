"""The student and the teacher of fine-tuning: by name and file, or the caller's own, which stay as they are."""

import logging
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from torch import nn

from exporter.depth.checkpoint import read_depth
from exporter.errors import ModelError, RecipeError
from exporter.files import PathLike
from exporter.models.base import PrunableViT
from exporter.models.identity import Identity
from exporter.models.networks import ModelRequest, identity_of
from exporter.workflows import steps
from exporter.workflows.recipes.job import Job

__all__ = ["Models", "OwnModel", "models_of", "teacher_request"]

OwnModel: TypeAlias = PrunableViT | nn.Module

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Models:
    """The student, which is trained in place, and the teacher; they share no weights.

    `identity` says how to build the network. It is None for a model of the caller's, of which nothing is known.
    """

    student: PrunableViT
    teacher: PrunableViT
    identity: Identity | None


def models_of(job: Job, model: OwnModel | None, teacher: PathLike | OwnModel | None) -> Models:
    """Load both models.

    Args:
        job: Names the model, where `model` is None.
        model: A model of the caller's; it is copied.
        teacher: The teacher's weights, or the teacher; by default the model itself, before it is trained.

    Raises:
        RecipeError: The teacher is a file, which nothing says how to read for a model of the caller's.
        ModelError: A model cannot be pruned, the teacher has other classes, or answers are useless.
        CheckpointError: A checkpoint does not fit the model.
    """
    student = steps.load_model(job.model, job.device, model)
    if student is model:
        student = deepcopy(student)
    spec = student.spec
    identity = None if model is not None else identity_of(job.model, spec.num_classes, spec.class_names)
    found = Models(student, _teacher(job, identity, model, teacher), identity)
    classes, expected = found.teacher.spec.num_classes, spec.num_classes
    if classes != expected:
        raise ModelError("teacher", f"{classes} classes", f"{expected}, as the model has")
    return found


def _teacher(
    job: Job, identity: Identity | None, model: OwnModel | None, teacher: PathLike | OwnModel | None
) -> PrunableViT:
    if isinstance(teacher, PrunableViT | nn.Module):
        return steps.load_model(job.model, job.device, teacher)
    if identity is not None:
        return steps.load_model(teacher_request(job, identity, teacher), job.device)
    if teacher is not None:
        raise RecipeError("teacher", "a file beside a model", "a model with the teacher's weights")
    return steps.load_model(job.model, job.device, model)


def teacher_request(job: Job, identity: Identity, weights: PathLike | None) -> ModelRequest:
    """Return the request of the teacher: the same network, with other weights if there are any."""
    if weights is None:
        if read_depth(job.model.checkpoint) is not None:
            logger.warning(
                "the teacher is the shallower network too; --teacher FILE gives the whole one's weights"
            )
        return job.model
    kwargs, preprocessing = identity.model_kwargs, identity.preprocessing
    return ModelRequest(
        identity.architecture, Path(weights), model_kwargs=kwargs, preprocessing=preprocessing
    )
