"""Measure top-1 and top-5 of one or two models over images, with intervals, and how much the second one loses.

Takes an export folder, ONNX files, engines, or PyTorch models (--model, --schedule): at most two models, which see
the same images in one pass. Images are a folder with one folder per class, or WebDataset tar files. Without labels,
only the agreement of two models is measured. Models without classes are compared by their labels, their values, or,
image towers, by their embeddings.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cli.flags import MODEL_FLAGS, add_file, add_recipe, recipe_of
from exporter.cli.output import (
    percent_interval,
    print_lines,
    print_table,
    show,
    skipped_lines,
)
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.errors import RecipeError
from exporter.core.base.progress import Stages
from exporter.engines.choice import RunSettings
from exporter.jobs.network import Network
from exporter.jobs.recipe import Recipe
from exporter.measure.loss import PairResult
from exporter.measure.settings import EvalSettings
from exporter.processes import processes
from exporter.report import words

if TYPE_CHECKING:
    from exporter.jobs.evaluate import Evaluation
    from exporter.jobs.predicting import EvalModel

EXAMPLES = (
    "star-export eval build/digits --images photos/",
    "star-export eval dense.onnx pruned.onnx --images photos/ --disagreements differ",
)

# The processes of a launcher share the images.
SPREAD = True

TORCH = (*MODEL_FLAGS, "schedule", "calibration")
# Classes that are listed with the largest change; JSON has all.
MOST_CLASSES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "first",
        type=Path,
        nargs="?",
        help="An export folder, or an .onnx or .engine file.",
    )
    parser.add_argument(
        "second", type=Path, nargs="?", help="A second file, to compare with the first."
    )
    text = "A folder of one folder per class, a folder of tar files, or tar files."
    add_file(parser, "--images", text, "PATH", dest="places", nargs="+", required=True)
    add_flags(parser, EvalSettings)
    add_flags(parser, RunSettings)
    text = "Write the images to which both models give different classes, as PATH.json and PATH.csv."
    add_file(parser, "--disagreements", text, "PATH")
    torch = parser.add_argument_group(
        "a PyTorch model; with a schedule, also its pruned form"
    )
    add_recipe(torch)
    add_flags(torch, Recipe, TORCH)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print; the exit code is 0, or 2 if the interval is wider than asked for."""
    settings = from_flags(EvalSettings, arguments)
    stages = arguments.stages
    recipe = recipe_of(arguments)
    if _names_model(recipe):
        Network.of(recipe).check_model()
    from exporter.jobs.evaluate import (
        disagreement_paths,
        evaluate_models,
        require_within,
        save_disagreements,
    )

    models = _models(arguments, recipe, stages)
    if arguments.disagreements is not None:
        if len(models) < 2 or not all(model.spec.num_classes for model in models):
            got = "one model" if len(models) < 2 else "a model without logits"
            raise RecipeError("--disagreements", got, "two that classify, to disagree")
        disagreement_paths(arguments.disagreements)
    result, differing = evaluate_models(models, arguments.places, settings, stages)
    if arguments.disagreements is not None and processes().main:
        save_disagreements(
            differing, [model.name for model in models], arguments.disagreements
        )
    show(arguments, result, lambda: _print(result))
    # The result is printed before: a long measurement is not lost because its interval is too wide.
    if settings.within is not None:
        require_within(result, settings.within)
    return 0


def _models(
    arguments: argparse.Namespace, recipe: Recipe, stages: Stages
) -> "tuple[EvalModel, ...]":
    """Return the one or two models that the arguments name, PyTorch's first."""
    from exporter.jobs.eval_models import models_at, torch_models

    paths = [path for path in (arguments.first, arguments.second) if path is not None]
    settings = from_flags(RunSettings, arguments)
    named = _names_model(recipe)
    files = models_at(paths, settings)
    count = len(files)
    if named:
        count += 1 if recipe.prune.schedule is None else 2
    if not 1 <= count <= 2:
        got = f"{count} models" if count else "no model (name it before --images)"
        expected = "an export folder, or one or two of FILE, FILE and --model NAME"
        raise RecipeError("eval", got, expected)
    if not named:
        return files
    from exporter.jobs.opened import open_recipe

    variant = open_recipe(recipe, stages)
    full, calibration = variant.network.full, variant.network.calibration
    models = torch_models(full, variant.given, calibration, threads=settings.threads)
    return (replace(models[0], name="pytorch"), *files) if files else models


def _names_model(recipe: Recipe) -> bool:
    return recipe.model.name != "" or recipe.model.checkpoint is not None


def _print(result: "Evaluation") -> None:
    if result.likeness is None:
        rows = []
        for name, model in result.models.items():
            cells = ["", "", ""]
            if accuracy := model.accuracy:
                interval = percent_interval(accuracy.interval)
                cells = [f"{accuracy.top1:.2%}", interval, f"{accuracy.top5:.2%}"]
            rows.append((name, model.runtime, model.batch, *cells))
        title = f"{result.images} images, {result.scored_classes} classes"
        columns = ("model", "runtime", "batch", "top-1", "95 % interval", "top-5")
        print_table(title, columns, rows)
    print_lines(_lines(result))


def _lines(result: "Evaluation") -> Iterator[str]:
    yield from skipped_lines({"evaluation": result.skipped})
    if result.pair is not None:
        yield from _pair_lines(result.pair)
    if (likeness := result.likeness) is not None:
        said = words.likeness(likeness)
        yield f"{likeness.images} images: {said.title} {said.value}"
        yield from (f"{name}: {value}" for name, value in said.rows.items())


def _pair_lines(pair: PairResult) -> Iterator[str]:
    interval = percent_interval(pair.agreement_interval)
    yield f"agreement: the same class on {pair.agreement:.2%} of the images (95 % {interval})"
    if pair.loss_points is None:
        yield "accuracy is not measured: the images have no labels"
        return
    yield f"{pair.second}: {words.loss(pair)}"
    yield f"only {pair.first} is right on {pair.lost} images, only {pair.second} on {pair.gained}"
    by_change = sorted(pair.classes, key=lambda result: -abs(result.change))
    changes = [
        f"{result.name} {result.change:+d} of {result.images}"
        for result in by_change[:MOST_CLASSES]
        if result.change
    ]
    if changes:
        yield f"classes that change most: {', '.join(changes)}"
