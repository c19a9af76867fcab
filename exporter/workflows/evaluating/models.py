"""The models to evaluate, each ready to run: those of an export folder, ONNX files, engines, PyTorch models."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from exporter.artefact import LoweredFile, read_lowered
from exporter.data.batches import View
from exporter.errors import ArtefactError, RecipeError
from exporter.files import PathLike
from exporter.records import ModelSpec, Schedule
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import TENSORRT, RunSettings, require_runtime, runner_for, runtime_for
from exporter.runtimes.tensorrt.manifest import ENGINES, read_manifest
from exporter.runtimes.tensorrt.runner import TensorRtRunner
from exporter.tensor_names import IMAGES
from exporter.vocabulary import InputKind
from exporter.workflows.folders.export_folder import read_folder

if TYPE_CHECKING:
    from torch import nn

    from exporter.calibration.record import Calibration
    from exporter.models.base import PrunableViT
    from exporter.pruning.pruned_vit import PrunedViT

__all__ = ["EvalModel", "models_at", "torch_model", "torch_models"]


@dataclass(frozen=True, eq=False)
class EvalModel:
    """A model on its runtime: what the result calls it, its file, what it is, and how it takes images.

    `spec.class_names` are in the order of the logits, none where they are not known.
    """

    name: str
    source: str
    runtime: str
    runner: Runner
    spec: ModelSpec
    input_kind: InputKind

    @property
    def view(self) -> View:
        """What it takes of an image."""
        return View(self.spec.preprocessing, self.input_kind)


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
    black = np.zeros((1, *artefact.spec.preprocessing.input_size), artefact.input_kind)
    require_runtime(file.path, {IMAGES: black}, artefact.target, settings)
    runner = runner_for(file.path, artefact.target, settings)
    runtime = runtime_for(artefact.target, settings)
    return EvalModel(name, file.path.name, runtime, runner, artefact.spec, artefact.input_kind)


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
    runner = TensorRtRunner(engine, onnx, plugin=settings.plugin)
    return EvalModel(name, engine.name, TENSORRT, runner, artefact.spec, artefact.input_kind)


def torch_models(
    vit: "PrunableViT",
    schedule: Schedule | None = None,
    calibration: "Calibration | None" = None,
    *,
    threads: int = 0,
) -> tuple[EvalModel, ...]:
    """Return a ViT as "dense", and with a schedule also its pruned model as "pruned".

    Args:
        vit: It runs on the device of its weights.
        schedule: What the pruned model keeps.
        calibration: The inter-layer scores of a schedule that needs them.
        threads: CPU threads within an operator; 0 keeps PyTorch's setting.

    Raises:
        ScheduleError: The schedule is of another model, or was made with other inter-layer scores.
    """
    from exporter.workflows import steps  # noqa: PLC0415  (needs PyTorch)

    dense = torch_model(steps.dense(vit), "dense", threads=threads)
    if schedule is None:
        return (dense,)
    return dense, torch_model(steps.prune(vit, schedule, calibration), "pruned", threads=threads)


def torch_model(
    model: "PrunedViT | PrunableViT | nn.Module", name: str = "", *, threads: int = 0
) -> EvalModel:
    """Return a model in PyTorch, by default named after its method: "dense" for one that is not pruned.

    Args:
        model: A pruned model, or an unpruned one: an adapter, or a module of a supported family, which is copied.
        name: What the result calls it.
        threads: CPU threads within an operator; 0 keeps PyTorch's setting.

    Raises:
        ModelError: There is no adapter for a module.
    """
    # They need PyTorch.
    from exporter.evaluation.parity.reference import reference_runner  # noqa: PLC0415
    from exporter.pruning.pruned_vit import PrunedViT  # noqa: PLC0415
    from exporter.workflows import steps  # noqa: PLC0415

    if not isinstance(model, PrunedViT):
        return torch_model(steps.dense(steps.load_model(model)), name, threads=threads)
    spec, runner = model.vit.spec, reference_runner(model, threads=threads or None)
    return EvalModel(name or str(model.method), spec.name, "pytorch", runner, spec, InputKind.FLOAT32)
