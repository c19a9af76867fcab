"""Evaluate one or two models over images in one pass: accuracy, agreement, and what the second loses.

Two models without classes are compared by their embeddings.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from exporter.data.source import ImageSource, open_source
from exporter.errors import RecipeError
from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.benchmark import environment
from exporter.evaluation.embeddings import agreement_of
from exporter.evaluation.eval_result import Evaluation, ModelResult
from exporter.evaluation.loss import compare_predictions
from exporter.files import PathLike
from exporter.workflows.evaluating.disagreements import Disagreement, disagreements
from exporter.workflows.evaluating.models import EvalModel
from exporter.workflows.evaluating.predicting import embed_models, predict_models
from exporter.workflows.evaluating.settings import EvalSettings
from exporter.workflows.memory import check_batches
from exporter.workflows.progress import Silent, Stages

if TYPE_CHECKING:
    from torch import nn

    from exporter.models.base import PrunableViT
    from exporter.pruning.pruned_vit import PrunedViT

    AnyModel: TypeAlias = EvalModel | PrunedViT | PrunableViT | nn.Module

__all__ = ["evaluate_models"]


def evaluate_models(
    models: "Sequence[AnyModel]",
    images: PathLike | Sequence[PathLike],
    settings: EvalSettings | None = None,
    stages: Stages | None = None,
) -> tuple[Evaluation, tuple[Disagreement, ...]]:
    """Run one or two models over the images once; return the result, and the images on which two models disagree.

    Args:
        models: The dense one first, where there is one: those of files (`models_at`), or models in PyTorch.
        images: A folder, or tar files: see `exporter.data.source`.
        settings: Which images count, and how they are run.
        stages: Shows progress.

    Raises:
        ImageError: There are no images, or their labels do not fit the models.
        RecipeError: The models have different classes or embeddings, or a setting needs classes and they have none.
        UserError: A model gives values that are not finite, or its runtime is missing.
    """
    settings, stages = settings or EvalSettings(), stages or Silent()
    ready, places = _ready(models), _places(images)
    if not any(model.num_classes for model in ready) and all(model.embedding for model in ready):
        return _agreement(ready, places, settings, stages), ()
    classes, names = _common_classes(ready), tuple(model.name for model in ready)
    source = open_source(
        places,
        classes,
        class_map=settings.class_map,
        names=_common_names(ready) if settings.labels and settings.class_map is None else (),
        labels=settings.labels,
        max_images=settings.max_eval_images,
        seed=settings.seed,
    )
    _check_batch(ready, source, settings)
    subset = np.array(sorted(source.class_names)) if settings.subset else None
    with stages.stage("images") as advance:
        alone = len(ready) == 1
        answers = predict_models(ready, source, settings, advance, classes=subset, needs_labels=alone)
    found = answers.found
    pair, differing = None, tuple[Disagreement, ...]()
    if len(found) == 2:
        pair = compare_predictions(*found, names=names, class_names=source.class_names)
        differing = disagreements(*found, images=answers.names)
    results = {each.name: _result(each, made) for each, made in zip(ready, found, strict=True)}
    scored = classes if subset is None else len(subset)
    versions = environment().versions
    return Evaluation(results, pair, len(answers.names), answers.skipped, scored, versions), differing


def _ready(models: "Sequence[AnyModel]") -> list[EvalModel]:
    """Return models that can run; if models in PyTorch have the same name, all names are numbered."""
    if all(isinstance(each, EvalModel) for each in models):
        return [each for each in models if isinstance(each, EvalModel)]
    from exporter.workflows.evaluating.pytorch import torch_model  # noqa: PLC0415  (needs PyTorch)

    found = [each if isinstance(each, EvalModel) else torch_model(each) for each in models]
    if len({each.name for each in found}) == len(found):
        return found
    return [replace(each, name=f"{each.name} {index}") for index, each in enumerate(found, start=1)]


def _places(images: PathLike | Sequence[PathLike]) -> list[Path]:
    """Return the paths of one place or of several."""
    return [Path(each) for each in ([images] if isinstance(images, str | os.PathLike) else images)]


def _agreement(
    models: Sequence[EvalModel], images: Sequence[Path], settings: EvalSettings, stages: Stages
) -> Evaluation:
    """Compare the embeddings of two models without classes."""
    if len(models) < 2:
        expected = "one that classifies, or a second one: towers are compared by their embeddings"
        raise RecipeError(models[0].name, "a model without logits, which has no top-1", expected)
    if settings.class_map is not None:
        raise RecipeError("--class-map", "classes for models without logits", "none")
    source = open_source(images, 0, labels=False, max_images=settings.max_eval_images, seed=settings.seed)
    _check_batch(models, source, settings)
    with stages.stage("images") as advance:
        answers = embed_models(models, source, settings, advance)
    channels = [each.values.shape[1] for each in answers.found]
    if channels[0] != channels[1]:
        got = f"embeddings of {channels[1]} channels"
        raise RecipeError(models[1].name, got, f"{channels[0]}, as {models[0].name} has")
    count = len(answers.names)
    results = {each.name: ModelResult(each.source, each.runtime, count) for each in models}
    agreement, versions = agreement_of(*answers.found), environment().versions
    return Evaluation(results, None, count, answers.skipped, 0, versions, agreement)


def _check_batch(models: Sequence[EvalModel], source: ImageSource, settings: EvalSettings) -> None:
    batch = settings.batch if source.total is None else min(settings.batch, source.total)
    for model in models:
        check_batches("--batch", (batch,), model.view.preprocessing)


def _common_classes(models: Sequence[EvalModel]) -> int:
    """Return the number of classes that the models share."""
    for model in models:
        if not model.num_classes:
            raise RecipeError(model.name, "a model without logits", "one that classifies")
        if model.num_classes != models[0].num_classes:
            got = f"{model.num_classes} classes"
            raise RecipeError(model.name, got, f"{models[0].num_classes}, as {models[0].name} has")
    return models[0].num_classes


def _common_names(models: Sequence[EvalModel]) -> tuple[str, ...]:
    """Return the names of the classes that the models share; none where none of them knows names.

    Raises:
        RecipeError: They know different ones.
    """
    known = [model for model in models if model.class_names]
    for model in known[1:]:
        for index, pair in enumerate(zip(known[0].class_names, model.class_names, strict=False)):
            if pair[0] != pair[1]:
                got = f"a class {index} that is called {pair[1]!r}"
                expected = f"{pair[0]!r}, as in {known[0].name}"
                raise RecipeError(model.name, got, expected, "--class-map decides for both")
    return known[0].class_names if known else ()


def _result(model: EvalModel, found: Predictions) -> ModelResult:
    measured = vars(found.accuracy) if found.labelled else {"images": len(found.labels)}
    return ModelResult(source=model.source, runtime=model.runtime, **measured)
