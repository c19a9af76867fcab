"""Evaluate one or two models over images in one pass: accuracy, agreement, and what the second loses."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from exporter.data.source import open_source
from exporter.errors import RecipeError
from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.benchmark import environment
from exporter.evaluation.eval_result import Evaluation, ModelResult
from exporter.evaluation.loss import compare_predictions
from exporter.workflows.disagreements import Disagreement, disagreements
from exporter.workflows.eval_models import EvalModel
from exporter.workflows.eval_settings import EvalSettings
from exporter.workflows.predicting import predict_models
from exporter.workflows.progress import Silent, Stages

__all__ = ["evaluate_models"]


def evaluate_models(
    models: Sequence[EvalModel],
    images: Sequence[Path],
    settings: EvalSettings | None = None,
    stages: Stages | None = None,
) -> tuple[Evaluation, tuple[Disagreement, ...]]:
    """Run one or two models over the images once; return the result, and the images on which two models disagree.

    Args:
        models: The dense one first, where there is one.
        images: A folder, or tar files: see `exporter.data.source`.
        settings: Which images count, and how they are run.
        stages: Shows progress.

    Raises:
        ImageError: There are no images, or their labels do not fit the models.
        RecipeError: The models have different classes.
        UserError: A model gives no finite logits, or its runtime is missing.
    """
    settings, stages = settings or EvalSettings(), stages or Silent()
    classes, names = _common_classes(models), tuple(model.name for model in models)
    source = open_source(
        images,
        classes,
        class_map=settings.class_map,
        labels=settings.labels,
        max_images=settings.max_images,
        seed=settings.seed,
    )
    subset = np.array(sorted(source.class_names)) if settings.subset else None
    with stages.stage("images") as advance:
        alone = len(models) == 1
        answers = predict_models(models, source, settings, advance, classes=subset, needs_labels=alone)
    found = answers.predictions
    pair, differing = None, tuple[Disagreement, ...]()
    if len(found) == 2:
        pair = compare_predictions(*found, names=names, class_names=source.class_names)
        differing = disagreements(*found, images=answers.names)
    results = {each.name: _result(each, made) for each, made in zip(models, found, strict=True)}
    scored = classes if subset is None else len(subset)
    versions = environment().versions
    return Evaluation(results, pair, len(answers.names), answers.skipped, scored, versions), differing


def _common_classes(models: Sequence[EvalModel]) -> int:
    """Return the number of classes that the models share."""
    for model in models:
        if not model.num_classes:
            raise RecipeError(model.name, "a model without logits", "one that classifies")
        if model.num_classes != models[0].num_classes:
            got = f"{model.num_classes} classes"
            raise RecipeError(model.name, got, f"{models[0].num_classes}, as {models[0].name} has")
    return models[0].num_classes


def _result(model: EvalModel, found: Predictions) -> ModelResult:
    measured = vars(found.accuracy) if found.labelled else {"images": len(found.labels)}
    return ModelResult(source=model.source, runtime=model.runtime, **measured)
