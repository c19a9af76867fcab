"""Evaluate one or two models over images in one pass: accuracy, agreement, and what the second loses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from exporter.data.batches import Batch, batches_of
from exporter.data.images import UNKNOWN
from exporter.data.source import ImageSource, open_source
from exporter.errors import ImageError, RecipeError
from exporter.evaluation.accuracy import Predictions, predict_each
from exporter.evaluation.benchmark import environment
from exporter.evaluation.eval_result import Evaluation, ModelResult
from exporter.evaluation.loss import compare_predictions
from exporter.workflows.disagreements import Disagreement, disagreements
from exporter.workflows.eval_models import EvalModel
from exporter.workflows.eval_settings import EvalSettings
from exporter.workflows.progress import Advance, Silent, Stages

__all__ = ["evaluate_models"]

Array = np.ndarray[Any, Any]


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
    workers = settings.workers or environment().usable_cpus
    with stages.stage("images") as advance:
        seen = _Seen(source, advance, needs_labels=len(models) == 1)
        loaded = batches_of(source.files, [model.view for model in models], settings.batch, workers=workers)
        runners = [model.runner for model in models]
        found = predict_each(runners, seen.feeds(loaded), classes=subset, size=settings.batch)
    pair, differing = None, tuple[Disagreement, ...]()
    if len(found) == 2:
        pair = compare_predictions(*found, names=names, class_names=source.class_names)
        differing = disagreements(*found, images=seen.names)
    results = {each.name: _result(each, made) for each, made in zip(models, found, strict=True)}
    scored = classes if subset is None else len(subset)
    versions = environment().versions
    return Evaluation(results, pair, len(seen.names), seen.skipped, scored, versions), differing


@dataclass
class _Seen:
    """The images of a pass: it passes them on, and notes their names and what was skipped."""

    source: ImageSource
    advance: Advance
    needs_labels: bool
    labelled: bool | None = None
    names: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def feeds(self, loaded: Iterator[Batch]) -> Iterator[tuple[Sequence[Array], Array]]:
        """Yield the views and the labels of each batch.

        Raises:
            ImageError: Only some images have a label, or none has where labels are needed.
        """
        for batch in loaded:
            self.skipped |= {self.source.name_of(each.path): each.reason for each in batch.skipped}
            if batch.files:
                names = [self.source.name_of(file.path) for file in batch.files]
                self._check_labels(batch.labels, names)
                self.names += names
                yield batch.views, batch.labels
            self.advance(len(self.names) + len(self.skipped), self.source.total)

    def _check_labels(self, labels: Array, names: Sequence[str]) -> None:
        known = labels != UNKNOWN
        if self.labelled is None:
            self.labelled = bool(known[0])
            if self.needs_labels and not self.labelled:
                hint = "without labels, a second model is needed to agree with"
                raise ImageError(names[0], "no label", "one folder a class, or labels in tar files", hint)
        if (known != self.labelled).any():
            odd = names[int((known != self.labelled).argmax())]
            got, expected = ("no label", "one") if self.labelled else ("a label", "none")
            raise ImageError(odd, got, f"{expected}, as the images before it", "--no-labels leaves out all")


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
