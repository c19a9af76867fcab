"""The models to evaluate, each ready to run: those of an export folder, ONNX files, engines, PyTorch models."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exporter.artefact import LoweredFile, read_lowered
from exporter.data.batches import View
from exporter.errors import ArtefactError, RecipeError
from exporter.files import PathLike
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import TENSORRT, RunSettings, require_runtime, runner_for, runtime_for
from exporter.runtimes.tensorrt.manifest import ENGINES, read_manifest
from exporter.runtimes.tensorrt.runner import TensorRtRunner
from exporter.tensor_names import IMAGES
from exporter.workflows.folders.export_folder import read_folder

__all__ = ["EvalModel", "models_at"]


@dataclass(frozen=True, eq=False)
class EvalModel:
    """A model on its runtime: what the result calls it, its file, what it takes of an image, and what it gives.

    `num_classes` is 0 without logits; `embedding` is the name of that output, "" without one. `class_names` are in
    the order of the logits, none where they are not known.
    """

    name: str
    source: str
    runtime: str
    runner: Runner
    view: View
    num_classes: int
    embedding: str = ""
    class_names: tuple[str, ...] = ()


def models_at(paths: Sequence[PathLike], settings: RunSettings) -> tuple[EvalModel, ...]:
    """Return the models of an export folder, named "dense" and "pruned", or of files, named after the files.

    Args:
        paths: An export folder; or .onnx and .engine files.
        settings: The runtime.

    Raises:
        ArtefactError: A path is neither, or star-export did not make it.
        RecipeError: A folder is not alone, a file is given twice, or an engine should run on another runtime.
        UserError: The runtime is missing, or runs a part of a model elsewhere.
    """
    files = [Path(path) for path in paths]
    folders = [path for path in files if path.is_dir()]
    if folders and len(files) > 1:
        raise RecipeError("eval", f"{folders[0]} and another model", "an export folder alone, or files")
    if folders:
        models = read_folder(folders[0]).models
        return tuple(_lowered(name, each, settings) for name, each in vars(models).items())
    if len({os.path.realpath(path) for path in files}) < len(files):
        raise RecipeError("eval", f"{files[0]} twice", "two different models")
    return tuple(
        _engine(name, path, settings)
        if path.suffix == ".engine"
        else _lowered(name, read_lowered(path), settings)
        for name, path in zip(_names(files), files, strict=True)
    )


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest of stem, file name and path that tells the files apart."""
    choices = ([path.stem for path in paths], [path.name for path in paths], [str(path) for path in paths])
    return next(names for names in choices if len(set(names)) == len(names))


def _lowered(name: str, file: LoweredFile, settings: RunSettings) -> EvalModel:
    artefact = file.artefact
    view = View(artefact.spec.preprocessing, artefact.input_kind)
    black = np.zeros((1, *view.preprocessing.input_size), view.input_kind)
    require_runtime(file.path, {IMAGES: black}, artefact.target, settings)
    runner = runner_for(file.path, artefact.target, settings)
    runtime = runtime_for(artefact.target, settings)
    given = artefact.spec.num_classes, artefact.spec.embedding, artefact.spec.class_names
    return EvalModel(name, file.path.name, runtime, runner, view, *given)


def _engine(name: str, engine: Path, settings: RunSettings) -> EvalModel:
    """Return an engine; its ONNX file, which says what it is, lies beside it or beside its folder."""
    if settings.runtime not in (None, TENSORRT):
        raise RecipeError("--runtime", str(settings.runtime), f"none: {engine.name} runs on {TENSORRT}")
    source = Path(read_manifest(engine).onnx).name
    places = [engine.absolute().parents[1] / source, engine.with_name(source)]
    onnx = next((path for path in places if path.is_file()), None)
    if onnx is None:
        got = f"no {source} beside it or its folder {ENGINES}"
        raise ArtefactError(str(engine), got, "the ONNX file that it was built from")
    artefact = read_lowered(onnx).artefact
    view = View(artefact.spec.preprocessing, artefact.input_kind)
    runner = TensorRtRunner(engine, onnx, plugin=settings.plugin)
    given = artefact.spec.num_classes, artefact.spec.embedding, artefact.spec.class_names
    return EvalModel(name, engine.name, TENSORRT, runner, view, *given)
