"""Models that are ready to run, and what several of them predict or embed over images in one pass."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from exporter.calibration.record import Calibration
from exporter.core.base.arguments import require
from exporter.core.base.artefact import Artefact, read_lowered
from exporter.core.base.errors import ArtefactError, ImageError, RecipeError
from exporter.core.base.files import PathLike
from exporter.core.base.machine import environment
from exporter.core.base.progress import Advance
from exporter.core.base.records import ModelSpec, Schedule
from exporter.core.base.targets import PYTORCH, Runtime
from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.base.vocabulary import InputKind
from exporter.core.verify.runner import PartRunner, ReorderedRunner, Runner
from exporter.data.batches import View, batches_of
from exporter.data.images import ImageFile, ImageFolder
from exporter.engines.choice import (
    RunSettings,
    require_runtime,
    runner_for,
    runtime_for,
)
from exporter.engines.manifest import ENGINES, read_manifest
from exporter.engines.runner import TensorRtRunner
from exporter.measure.accuracy import Batches, Predictions, answer_each, predict_each
from exporter.measure.likeness import Embeddings
from exporter.processes import Processes, processes
from exporter.serve.export_folder import read_folder

if TYPE_CHECKING:
    from torch import nn

    from exporter.core.prune.pruned_vit import PrunedViT
    from exporter.core.vit.protocol import PrunableViT

FoundT = TypeVar("FoundT", Predictions, Embeddings)


@dataclass(frozen=True, eq=False)
class EvalModel:
    """A model on its runtime: what the result calls it, its file, what it is, and how it takes images.

    One that is `dynamic` has activation ranges of each batch. Its answers are those of images one by one, which
    depend on no other image. Where it is compared with another model, `order` has its index of each of that one's
    classes; () where all are the same.
    """

    name: str
    source: str
    runtime: Runtime
    runner: Runner
    spec: ModelSpec
    input_kind: InputKind
    dynamic: bool = False
    order: tuple[int, ...] = ()

    @property
    def answering(self) -> Runner:
        """What gives its answers, whatever the batch."""
        runner = PartRunner(self.runner, (1,)) if self.dynamic else self.runner
        head = self.spec.head
        if head is None or not self.order:
            return runner
        return ReorderedRunner(runner, head.name, self.order)

    def per_run(self, batch: int) -> int:
        """Return how many images of a batch run together for their answers."""
        return 1 if self.dynamic else batch

    @property
    def view(self) -> View:
        """What it takes of an image."""
        return View(self.spec.preprocessing, self.input_kind)


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
        models = read_folder(folders[0]).models
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


def lowered_model(file: Artefact, settings: RunSettings, name: str) -> EvalModel:
    """Return a lowered model on the runtime of the settings, which is not checked to be there."""
    return EvalModel(
        name,
        file.path.name,
        runtime_for(file.target, settings),
        runner_for(file.path, file.target, settings),
        file.spec,
        file.input_kind,
        file.target.dynamic,
    )


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

    dense = torch_model(vit, "dense", threads=threads)
    if schedule is None:
        return (dense,)
    return dense, torch_model(
        steps.prune(vit, schedule, calibration), "pruned", threads=threads
    )


def torch_model(
    model: "PrunedViT | PrunableViT | nn.Module",
    name: str = "",
    *,
    threads: int = 0,
    input_kind: InputKind = InputKind.FLOAT32,
) -> EvalModel:
    """Return a model in PyTorch, by default named after its method: "dense" for one that is not pruned.

    Args:
        model: A pruned model, or an unpruned one: an adapter, or a module of a supported family, which is copied.
        name: What the result calls it.
        threads: CPU threads within an operator; 0 keeps PyTorch's setting.
        input_kind: How it takes images.
    """
    # They need PyTorch.
    from torch import nn  # noqa: PLC0415

    from exporter.core.prune.pruned_vit import PrunedViT  # noqa: PLC0415
    from exporter.core.verify.reference import reference_runner  # noqa: PLC0415
    from exporter.core.vit.protocol import PrunableViT  # noqa: PLC0415
    from exporter.jobs import steps  # noqa: PLC0415
    from exporter.models.pruned_module import is_pruned  # noqa: PLC0415

    require(model, (PrunedViT, PrunableViT, nn.Module), "models")
    if not isinstance(model, PrunedViT):
        if not isinstance(model, PrunableViT) and is_pruned(model):
            model = steps.reference_of(model)
        else:
            model = steps.dense(model)
    spec, settings = model.vit.spec, RunSettings(threads=threads)
    runner = reference_runner(model, input_kind, threads=settings.threads or None)
    return EvalModel(
        name or str(model.method), spec.name, PYTORCH, runner, spec, input_kind
    )


@dataclass(frozen=True, eq=False)
class Answers(Generic[FoundT]):
    """What was found of each model for the images `names`, in order; `skipped` says why an image was left out."""

    found: tuple[FoundT, ...]
    names: tuple[str, ...]
    skipped: dict[str, str]


def predict_models(
    models: Sequence[EvalModel],
    source: ImageFolder,
    batch: int,
    advance: Advance,
    *,
    classes: Array | None = None,
    crew: Processes | None = None,
) -> Answers[Predictions]:
    """Run models over the images once; every process runs whole batches of its own and returns all answers.

    Args:
        models: At least one.
        source: The images.
        batch: Images per run; a smaller last batch is filled up, to the number of images at most.
        advance: Called with the number of images done by all processes, and the total.
        classes: Only these compete, ascending; None: all.
        crew: The processes that share the images; `Processes()` for a job of one alone, None: all of a launcher.

    Raises:
        ImageError: No image can be read.
    """

    def predicted(batches: Batches) -> tuple[Predictions, ...]:
        size = _filled(models, source, batch)
        return predict_each(
            [model.answering for model in models], batches, classes=classes, size=size
        )

    return _answered(
        models, predicted, source, advance, batch=batch, crew=crew or processes()
    )


def embed_models(
    models: Sequence[EvalModel],
    outputs: Sequence[str],
    source: ImageFolder,
    batch: int,
    advance: Advance,
    *,
    crew: Processes | None = None,
) -> Answers[Embeddings]:
    """Run models over the images once, and return the vectors of an output of each.

    The arguments, the sharing among processes and the errors are those of `predict_models`.
    """

    def embedded(batches: Batches) -> tuple[Embeddings, ...]:
        runners = [model.answering for model in models]
        size = _filled(models, source, batch)
        arrays, labels = answer_each(
            runners, batches, outputs, lambda values: values, size=size
        )
        return tuple(Embeddings(values.astype(np.float32), labels) for values in arrays)

    return _answered(
        models, embedded, source, advance, batch=batch, crew=crew or processes()
    )


def _filled(models: Sequence[EvalModel], source: ImageFolder, batch: int) -> int:
    """Return the size that a smaller batch is filled up to: an engine's own, else no more than there are images."""
    fixed = any(model.runtime.engines for model in models)
    return batch if fixed else min(batch, len(source.files))


def _answered(
    models: Sequence[EvalModel],
    run: Callable[[Batches], tuple[FoundT, ...]],
    source: ImageFolder,
    advance: Advance,
    *,
    batch: int,
    crew: Processes,
) -> Answers[FoundT]:
    """Pass the images of this process to the models, and join what all processes found."""
    names, skipped = list[str](), dict[str, str]()
    views, workers = [model.view for model in models], environment().usable_cpus

    def feeds() -> Iterator[tuple[Sequence[Array], Array]]:
        files = _shared(source.files, batch, crew)
        for loaded in batches_of(files, views, batch, workers=workers):
            for path, reason in loaded.skipped.items():
                skipped[source.name_of(path)] = reason
            names.extend(source.name_of(file.path) for file in loaded.files)
            if loaded.files:
                yield loaded.views, loaded.labels
            done = (len(names) + len(skipped)) * crew.count
            advance(done, len(source.files))

    results = run(feeds())
    parts = crew.gathered(Answers(results, tuple(names), skipped))
    if not any(part.names for part in parts):
        raise ImageError(
            models[0].runner.name, "no image", "at least one that can be read"
        )
    return _joined(parts)


def _shared(
    files: Sequence[ImageFile], batch: int, crew: Processes
) -> Sequence[ImageFile]:
    """Return the files of this process: as many whole batches, one after the other, as the others have."""
    share = batch * ceil(len(files) / (batch * crew.count))
    return files[crew.index * share :][:share]


def _joined(parts: Sequence[Answers[FoundT]]) -> Answers[FoundT]:
    """Put the answers of all processes one after the other; there is one."""

    def joined(*shares: FoundT) -> FoundT:
        kind, columns = type(shares[0]), []
        for field in fields(kind):
            arrays = [getattr(share, field.name) for share in shares]
            columns.append(np.concatenate(arrays))
        return kind(*columns)

    names = tuple(name for part in parts for name in part.names)
    results = map(joined, *(part.found for part in parts if part.names))
    skipped = {name: reason for part in parts for name, reason in part.skipped.items()}
    return Answers(tuple(results), names, skipped)
