"""Make what is named ready to be evaluated: export folders, files, engines, and models in PyTorch."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from exporter.arguments import require
from exporter.calibration.record import Calibration
from exporter.core.base.artefact import Artefact, read_lowered
from exporter.core.base.errors import ArtefactError, RecipeError
from exporter.core.base.files import PathLike
from exporter.core.base.records import Schedule
from exporter.core.base.tensor_names import IMAGES
from exporter.engines.choice import RunSettings, require_runtime
from exporter.engines.manifest import ENGINES, read_manifest
from exporter.engines.runner import TensorRtRunner
from exporter.jobs.predicting import EvalModel, lowered_model, reference_model
from exporter.serve.export_folder import read_models

if TYPE_CHECKING:
    from torch import nn

    from exporter.core.prune.pruned_vit import PrunedViT
    from exporter.core.vit.protocol import PrunableViT


def models_at(
    paths: PathLike | Sequence[PathLike], settings: RunSettings
) -> tuple[EvalModel, ...]:
    """Return the models of an export folder, named "dense" and "pruned", or of files, named after the files.

    Args:
        paths: An export folder; or .onnx and .engine files.
        settings: The runtime.

    Raises:
        ArtefactError: A path is neither, or star-export did not make it.
        RecipeError: A folder is not alone, a file is given twice, or an engine should run on another runtime.
        UserError: The runtime is missing, or runs a part of a model elsewhere.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    files = [Path(path) for path in given]
    folders = [path for path in files if path.is_dir()]
    if folders and len(files) > 1:
        raise RecipeError(
            "eval",
            f"{folders[0]} and another model",
            "an export folder alone, or files",
        )
    if folders:
        models = read_models(folders[0])
        return tuple(
            _that_runs(name, file, settings) for name, file in vars(models).items()
        )
    if len({os.path.realpath(path) for path in files}) < len(files):
        raise RecipeError("eval", f"{files[0]} twice", "two different models")
    return tuple(
        _engine(name, path, settings)
        if path.suffix == ".engine"
        else _that_runs(name, read_lowered(path), settings)
        for name, path in zip(_names(files), files, strict=True)
    )


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest of stem, file name and path that tells the files apart."""
    choices = (
        [path.stem for path in paths],
        [path.name for path in paths],
        [str(path) for path in paths],
    )
    return next(names for names in choices if len(set(names)) == len(names))


def _that_runs(name: str, file: Artefact, settings: RunSettings) -> EvalModel:
    black = np.zeros((1, *file.spec.preprocessing.input_size), file.input_kind)
    require_runtime(file.path, {IMAGES: black}, file.target, settings)
    return lowered_model(file, settings, name)


def _engine(name: str, engine: Path, settings: RunSettings) -> EvalModel:
    """Return an engine; its ONNX file, which says what it is, lies beside it or beside its folder."""
    manifest = read_manifest(engine)
    tool = manifest.settings.tool
    if settings.runtime not in (None, tool.name):
        expected = f"none: {engine.name} runs on {tool.name}"
        raise RecipeError("--runtime", str(settings.runtime), expected)
    source = Path(manifest.onnx).name
    places = [engine.absolute().parents[1] / source, engine.with_name(source)]
    onnx = next((path for path in places if path.is_file()), None)
    if onnx is None:
        got = f"no {source} beside it or its folder {ENGINES}"
        raise ArtefactError(engine, got, "the ONNX file that it was built from")
    artefact = read_lowered(onnx)
    runner = TensorRtRunner(engine, onnx, plugin=settings.plugin)
    return EvalModel(
        name, engine.name, tool, runner, artefact.spec, artefact.input_kind
    )


def torch_models(
    vit: "PrunableViT",
    schedule: Schedule | None = None,
    calibration: Calibration | None = None,
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
    from exporter.jobs import steps  # noqa: PLC0415  (needs PyTorch)

    dense = torch_model(vit, threads=threads)
    if schedule is None:
        return (dense,)
    pruned = steps.prune(vit, schedule, calibration)
    return dense, reference_model(pruned, "pruned", threads=threads)


def torch_model(
    model: "PrunedViT | PrunableViT | nn.Module", *, threads: int = 0
) -> EvalModel:
    """Return a model in PyTorch, named after its method: "dense" for one that is not pruned.

    It is a pruned one, an adapter, or a module of a supported family, which is copied; `threads` as for several.
    """
    # They need PyTorch.
    from torch import nn  # noqa: PLC0415

    from exporter.core.prune.pruned_vit import PrunedViT  # noqa: PLC0415
    from exporter.core.vit.protocol import PrunableViT  # noqa: PLC0415
    from exporter.jobs import steps  # noqa: PLC0415
    from exporter.models.pruned_module import is_pruned  # noqa: PLC0415

    require(model, (PrunedViT, PrunableViT, nn.Module), "models")
    if not isinstance(model, PrunedViT):
        if not isinstance(model, PrunableViT) and is_pruned(model):
            model = steps.reference_of(model)
        else:
            model = steps.dense(model)
    threads = RunSettings(threads=threads).threads
    return reference_model(model, str(model.method), threads=threads)
