"""Evaluate one or two models over images in one pass: accuracy, agreement, and what the second loses."""

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import ImageError, OutputError, RecipeError
from exporter.core.base.files import PathLike, writable_file, written_beside
from exporter.core.base.intervals import (
    Interval,
    half_width,
    least_images,
    loss_interval,
    wilson,
)
from exporter.core.base.machine import environment
from exporter.core.base.progress import SILENT, Stages
from exporter.core.base.records import ModelSpec, Output
from exporter.core.base.vocabulary import OutputKind
from exporter.core.verify.runner import ReorderedRunner
from exporter.data.images import ImageFolder
from exporter.data.source import open_source
from exporter.jobs.eval_models import torch_model
from exporter.jobs.predicting import (
    Answers,
    EvalModel,
    embed_models,
    predict_models,
)
from exporter.measure.accuracy import Accuracy, Predictions
from exporter.measure.class_order import class_order
from exporter.measure.likeness import (
    Agreement,
    Deviations,
    compare_vectors,
)
from exporter.measure.loss import PairResult, compare_predictions
from exporter.measure.settings import EvalSettings

if TYPE_CHECKING:
    from torch import nn

    from exporter.core.prune.pruned_vit import PrunedViT
    from exporter.core.vit.protocol import PrunableViT

    AnyModel: TypeAlias = EvalModel | PrunedViT | PrunableViT | nn.Module


@dataclass(frozen=True)
class ModelResult:
    """One model: its file, its runtime, the images of a run, and its accuracy, None without labels."""

    source: str
    runtime: str
    batch: int
    accuracy: Accuracy | None = None


@dataclass(frozen=True)
class Evaluation:
    """The models by name in the order of their runs; `pair` compares the second with the first, None for one.

    `skipped` says why an image was left out, by its name. `scored_classes` is the number of classes that competed.
    `versions` are those of the libraries that ran. Models without classes have an `agreement` of their embeddings,
    or `deviations` of their labels or values, instead of a `pair`.
    """

    models: dict[str, ModelResult]
    pair: PairResult | None
    images: int
    skipped: dict[str, str]
    scored_classes: int
    versions: dict[str, str]
    agreement: Agreement | None = None
    deviations: Deviations | None = None

    @property
    def likeness(self) -> Agreement | Deviations | None:
        """How models without classes agree."""
        return self.deviations or self.agreement

    def __repr__(self) -> str:
        top1 = (
            f"{name} {model.accuracy.top1:.2%}" if model.accuracy else name
            for name, model in self.models.items()
        )
        return f"<Evaluation of {self.images} images: {', '.join(top1)}>"


@dataclass(frozen=True)
class Disagreement:
    """An image, the index of its class if it is known, and the classes that both models give it."""

    image: str
    label: int | None
    first: int
    second: int


def evaluate_models(
    models: Sequence["AnyModel"],
    images: PathLike | Sequence[PathLike],
    settings: EvalSettings | None = None,
    stages: Stages = SILENT,
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
    settings = settings or EvalSettings()
    ready = _named(models)
    paths = [images] if isinstance(images, str | os.PathLike) else images
    places = [Path(path) for path in paths]
    classified = any(model.spec.num_classes for model in ready)
    if not classified and all(model.spec.vectors for model in ready):
        return _without_classes(ready, places, settings, stages), ()
    return _with_classes(ready, places, settings, stages)


def _evaluation(
    models: Sequence[EvalModel],
    answers: Answers,
    settings: EvalSettings,
    *,
    accuracies: Sequence[Accuracy | None],
    pair: PairResult | None = None,
    scored_classes: int = 0,
    **likeness: Any,
) -> Evaluation:
    """Return what models are by name, with how they compare."""
    results = {}
    for model, accuracy in zip(models, accuracies, strict=True):
        batch = model.per_run(settings.batch)
        results[model.name] = ModelResult(
            model.source, model.runtime.name, batch, accuracy
        )
    return Evaluation(
        results,
        pair,
        len(answers.names),
        answers.skipped,
        scored_classes,
        environment().versions,
        **likeness,
    )


def _named(models: "Sequence[AnyModel]") -> list[EvalModel]:
    """Return models that can run; if some have the same name, all names are numbered."""
    if len(models) not in (1, 2):
        raise RecipeError("models", f"{len(models)}", "one or two")
    ready = [
        model if isinstance(model, EvalModel) else torch_model(model)
        for model in models
    ]
    if len({model.name for model in ready}) == len(ready):
        return ready
    numbered = enumerate(ready, start=1)
    return [replace(model, name=f"{model.name} {number}") for number, model in numbered]


def _with_classes(
    models: Sequence[EvalModel],
    images: Sequence[Path],
    settings: EvalSettings,
    stages: Stages,
) -> tuple[Evaluation, tuple[Disagreement, ...]]:
    """Measure the accuracy of models with classes; compare two."""
    classes = _common_classes(models)

    def listed(spec: ModelSpec) -> ImageFolder:
        return open_source(
            images,
            classes,
            class_map=settings.class_map,
            names=spec.class_names,
            labels=settings.labels,
            needs_labels=len(models) == 1,
            max_images=settings.max_eval_images,
            seed=settings.seed,
        )

    source = listed(models[0].spec)
    models = _in_one_order(models, settings.class_map, listed)
    subset = None
    if settings.subset:
        subset = np.array(sorted(source.class_names))
        if len(subset) < 2:
            got = f"{len(subset)} class to choose among"
            raise ImageError(f"{settings.class_map}", got, "two or more, for subset")
    with stages.stage("images") as advance:
        answers = predict_models(
            models, source, settings.batch, advance, classes=subset
        )
    pair, differing = _compared(models, answers, source.class_names)
    scored = classes if subset is None else len(subset)
    accuracies = [
        predictions.accuracy if predictions.labelled else None
        for predictions in answers.predictions
    ]
    evaluation = _evaluation(
        models,
        answers,
        settings,
        accuracies=accuracies,
        pair=pair,
        scored_classes=scored,
    )
    return evaluation, differing


def _compared(
    models: Sequence[EvalModel],
    answers: Answers,
    class_names: Mapping[int, str],
) -> tuple[PairResult | None, tuple[Disagreement, ...]]:
    """Return how two models compare, and the images on which they disagree; nothing of one model."""
    if len(models) < 2:
        return None, ()
    first, second = answers.predictions
    names = [model.name for model in models]
    pair = compare_predictions(first, second, names=names, class_names=class_names)
    return pair, disagreements(first, second, images=answers.names)


def _without_classes(
    models: Sequence[EvalModel],
    images: Sequence[Path],
    settings: EvalSettings,
    stages: Stages,
) -> Evaluation:
    """Compare the labels, the values or the embeddings of two models without classes."""
    outputs = _common_vectors(models, settings)
    models = _in_one_order(models)
    source = open_source(
        images,
        0,
        labels=settings.labels,
        max_images=settings.max_eval_images,
        seed=settings.seed,
    )
    names = [output.name for output in outputs]
    with stages.stage("images") as advance:
        answers = embed_models(models, names, source, settings.batch, advance)
    first, second = answers.arrays
    names_of_classes = models[0].spec.class_names
    likeness = compare_vectors(
        first, second, answers.labels, outputs[0], names_of_classes
    )
    return _evaluation(models, answers, settings, accuracies=(None, None), **likeness)


def _common_vectors(
    models: Sequence[EvalModel], settings: EvalSettings
) -> list[Output]:
    """Return what two models without classes give; RecipeError unless it is alike, and fits the settings."""
    if len(models) < 2:
        expected = "one that classifies, or a second one: others are compared by what they give"
        raise RecipeError(
            models[0].name, "a model without logits, which has no top-1", expected
        )
    if settings.class_map is not None:
        raise RecipeError("--class-map", "classes for models without logits", "none")
    outputs = [model.spec.vectors[0] for model in models]
    needed, got = (f"{output.kind} of {output.channels} channels" for output in outputs)
    if needed != got:
        raise RecipeError(models[1].name, got, f"{needed}, as {models[0].name} has")
    if settings.within is not None and outputs[0].kind == OutputKind.VALUES:
        raise RecipeError(
            "--within", "points for values", "models with classes or labels"
        )
    return outputs


def _common_classes(models: Sequence[EvalModel]) -> int:
    first, classes = models[0], models[0].spec.num_classes
    for model in models:
        count = model.spec.num_classes
        if not count:
            raise RecipeError(
                model.name, "a model without logits", "one that classifies"
            )
        if count != classes:
            expected = f"{classes}, as {first.name} has"
            raise RecipeError(model.name, f"{count} classes", expected)
    return classes


def _in_one_order(
    models: Sequence[EvalModel],
    class_map: Path | None = None,
    listed: Callable[[ModelSpec], ImageFolder] | None = None,
) -> Sequence[EvalModel]:
    """Return the models with the classes of the second one in the order of the first."""
    if len(models) < 2:
        return models
    specs = [model.spec for model in models]
    names = [model.name for model in models]
    order = class_order(specs, names, class_map, listed)
    first, second = models
    if second.spec.head is None or not order:
        return models
    runner = ReorderedRunner(second.runner, second.spec.head.name, order)
    return first, replace(second, runner=runner)


def require_within(result: Evaluation, points: float) -> None:
    """Check that the 95 % interval is no wider than ± `points`.

    It is that of the loss of two models, of their agreement if there are no labels, of the same nearest image, both
    re-indexed, or of the label that changes most, if there are no classes, or of one model's top-1.
    """
    images, (estimate, interval) = result.images, _estimate(result)
    half = 100 * half_width(interval(images))
    if half > points:
        enough = least_images(lambda count: 100 * half_width(interval(count)) <= points)
        got = f"{estimate} within ± {half:.3g} points on {images} images"
        raise ImageError(
            "--within", got, f"± {points:g}", f"about {enough:,} images are enough"
        )


def _estimate(result: Evaluation) -> tuple[str, Callable[[int], Interval]]:
    """Return what is estimated, and its interval for a number of images at the measured rates."""
    images, pair = result.images, result.pair
    if pair is not None and pair.lost is not None and pair.gained is not None:
        lost, gained = pair.lost / images, pair.gained / images
        return "the loss", lambda count: loss_interval(
            lost * count, gained * count, count
        )
    if result.deviations is not None:
        name = "the same label"
        share = 1.0 - max(label.moved for label in result.deviations.numbers)
    elif result.agreement is not None:
        name, retrieval = "the same nearest image", result.agreement.retrieval
        share = 0.0 if retrieval is None else retrieval.reindexed_at_1
    elif pair is not None:
        name, share = "the agreement", pair.agreement
    else:
        (model,) = result.models.values()
        name = "top-1"
        share = model.accuracy.top1_hits / images if model.accuracy else 0.0
    return name, lambda count: wilson(share * count, count)


def disagreements(
    first: Predictions, second: Predictions, images: Sequence[str]
) -> tuple[Disagreement, ...]:
    """Return the images of which the best classes differ, in their order; `images` are the names of all."""
    ours, theirs = first.best[:, 0], second.best[:, 0]
    differing = []
    for at in (ours != theirs).nonzero()[0]:
        label = int(first.labels[at]) if first.labelled else None
        differing.append(
            Disagreement(images[at], label, int(ours[at]), int(theirs[at]))
        )
    return tuple(differing)


def disagreement_paths(path: Path) -> tuple[Path, Path]:
    """Return the paths of both files, which replace the ending .json or .csv of `path` or follow its name."""
    if not path.name:
        raise OutputError(path, "a folder", "the name of a file to write")
    stem = path.stem if path.suffix in (".json", ".csv") else path.name
    as_json, as_csv = path.with_name(f"{stem}.json"), path.with_name(f"{stem}.csv")
    return writable_file(as_json), writable_file(as_csv)


def save_disagreements(
    differing: Sequence[Disagreement], names: Sequence[str], path: Path
) -> None:
    """Write both files, each atomically; `names` are those of the models."""
    as_json, as_csv = disagreement_paths(path)
    save_json({"first": names[0], "second": names[1], "images": differing}, as_json)
    with (
        written_beside(as_csv) as partial,
        # The name of an image may be no UTF-8: it is written as the file system has it.
        partial.open(
            "w", encoding="utf-8", errors="surrogateescape", newline=""
        ) as file,
    ):
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("image", "label", *names))
        for image in differing:
            label = "" if image.label is None else image.label
            rows.writerow((image.image, label, image.first, image.second))
