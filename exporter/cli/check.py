"""Compare an exported model with its PyTorch reference on real images.

Compares the models of an export folder with PyTorch's recorded outputs (needs only numpy and the runtime), or an
ONNX file with the PyTorch model. Exits with 1 if they do not agree.
"""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from exporter.cli.flags import (
    MODEL_FLAGS,
    add_file,
    add_folder,
    add_recipe,
    recipe_of,
    refuse,
)
from exporter.cli.output import print_lines, show
from exporter.cli.setting_flags import add_flags, by_place, from_flags
from exporter.core.base.errors import ArtefactError, RecipeError
from exporter.core.base.settings import sections_of
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.engines.choice import RunSettings
from exporter.jobs.network import A_FOLDER, Network
from exporter.jobs.recipe import Lowering, Recipe, needed
from exporter.report.parity_words import explain

if TYPE_CHECKING:
    from exporter.core.base.artefact import Artefact
    from exporter.core.vit.protocol import PrunableViT
    from exporter.serve.check import FolderCheck

EXAMPLES = (
    "star-export check build/digits",
    "star-export check --onnx pruned.onnx --model digits_vit --images photos/",
)
FAILS = "a model does not agree with PyTorch"

# What describes the PyTorch model and its images; a folder holds PyTorch's outputs instead.
REFERENCE = (*MODEL_FLAGS, "images", "calibration")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_folder(parser, "?")
    add_flags(parser, RunSettings)
    add_recipe(parser)
    add_flags(parser, Recipe, REFERENCE)
    add_file(parser, "--onnx", "An ONNX file to check, instead of a folder.")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print the parity result; the exit code is 0 if all checks pass, else 1."""
    if (arguments.folder is None) == (arguments.onnx is None):
        got = "neither" if arguments.folder is None else "a folder and a file"
        raise RecipeError("check", got, "an export folder, or --onnx FILE")
    if arguments.folder is None:
        return _compare_file(arguments)
    hint = "the folder has its own images and PyTorch's outputs"
    if arguments.recipe is not None:
        got = "a value beside an export folder"
        raise RecipeError("--recipe", got, "no --recipe", hint)
    refuse(arguments, by_place(sections_of(Recipe)), "an export folder", hint)
    return _compare_folder(arguments)


def _compare_folder(arguments: argparse.Namespace) -> int:
    from exporter.serve.check import check_folder

    settings = from_flags(RunSettings, arguments)
    with arguments.stages.stage("parity with PyTorch's outputs"):
        result = check_folder(arguments.folder, settings)
    record = {**vars(result), "passed": result.passed}
    show(arguments, record, lambda: _print(result))
    return 0 if result.passed else 1


def _print(result: "FolderCheck") -> None:
    for batch, parity in {0: result.parity, **result.engines}.items():
        lines = (*explain(parity.dense), *explain(parity.pruned))
        print_lines(f"batch {batch}: {line}" if batch else line for line in lines)


def _compare_file(arguments: argparse.Namespace) -> int:
    recipe, settings = recipe_of(arguments), from_flags(RunSettings, arguments)
    if settings.runtime is not None:
        expected = "none with --onnx: a file is checked on its target's runtime"
        raise RecipeError("--runtime", settings.runtime, expected)
    needed(recipe.images.images, "--images", A_FOLDER)
    network = Network.of(recipe)
    network.policy()
    network.check_images()
    network.check_model()
    from exporter.core.base.artefact import artefact_of
    from exporter.core.base.large_onnx import load_whole

    file = str(arguments.onnx)
    model = load_whole(arguments.onnx)
    artefact = artefact_of(model, file)
    from exporter.core import compiler
    from exporter.core.lower.check import check_graph
    from exporter.core.vit.spec import asked_as
    from exporter.jobs.opened import open_recipe
    from exporter.jobs.variant import Variant

    stages = arguments.stages
    network = open_recipe(recipe, stages).network
    threads = settings.threads or network.measuring.threads
    check_graph(model, artefact, file)
    full = _require_same(artefact, network, file)
    outputs = [asked_as(output) for output in artefact.spec.outputs]
    network = replace(network.with_outputs(*outputs), model=full)
    layout = artefact.layout if artefact.schedule.adaptive else None
    variant = Variant(
        network,
        resolve(Prune(), artefact.schedule),
        Lowering(artefact.target.name, layout, artefact.input_kind),
    )
    with stages.stage("parity"):
        count = recipe.images.check_images
        pixels = network.pixels(network.folder, count, artefact.input_kind)
        report = compiler.check(variant.pruned, model, pixels, threads=threads)
    show(arguments, report, lambda: print_lines(explain(report)))
    return 0 if report.passed else 1


def _require_same(artefact: "Artefact", network: Network, file: str) -> "PrunableViT":
    """Return the model of a recipe; ArtefactError unless a file has its weights and its preprocessing."""
    if artefact.refit_of:
        got = "a model with refitted weights"
        expected = "one with the weights of --model"
        raise ArtefactError(file, got, expected, "check its export folder")
    if artefact.spec.preprocessing != network.full.spec.preprocessing:
        got = "another preprocessing than that of the model"
        expected = "the model, and preprocess in a recipe, that it was exported with"
        raise ArtefactError(file, got, expected)
    return network.full
