"""Models that are ready to run, and what several of them predict or embed over images in one pass."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from exporter.artefact import LoweredFile, read_lowered
from exporter.data.batches import Batch, View, batches_of
from exporter.data.images import UNKNOWN, ImageFile, ImageSource
from exporter.errors import ArtefactError, ImageError, RecipeError
from exporter.evaluation.accuracy import Batches, Predictions, predict_each, require_images
from exporter.evaluation.benchmark import environment
from exporter.evaluation.loss import Embeddings, embed_each
from exporter.files import PathLike
from exporter.processes import processes
from exporter.records import ModelSpec, Schedule
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import RunSettings, require_runtime, runner_for, runtime_for
from exporter.runtimes.tensorrt.manifest import ENGINES, read_manifest
from exporter.runtimes.tensorrt.runner import TensorRtRunner
from exporter.runtimes.tensorrt.settings import TENSORRT
from exporter.tensor_names import IMAGES, Array
from exporter.vocabulary import InputKind
from exporter.workflows.folders.export_folder import read_folder
from exporter.workflows.progress import Advance
from exporter.workflows.recipe import EvalSettings

if TYPE_CHECKING:
    from torch import nn

    from exporter.calibration.record import Calibration
    from exporter.models.base import PrunableViT
    from exporter.pruning.pruned_vit import PrunedViT

FoundT = TypeVar("FoundT", Predictions, Embeddings)


@dataclass(frozen=True, eq=False)
class EvalModel:
    """A model on its runtime: what the result calls it, its file, what it is, and how it takes images."""

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
    """
    # They need PyTorch.
    from exporter.evaluation.parity.reference import reference_runner  # noqa: PLC0415
    from exporter.pruning.pruned_vit import PrunedViT  # noqa: PLC0415
    from exporter.workflows import steps  # noqa: PLC0415

    if not isinstance(model, PrunedViT):
        return torch_model(steps.dense(steps.load_model(model)), name, threads=threads)
    spec, runner = model.vit.spec, reference_runner(model, threads=threads or None)
    return EvalModel(name or str(model.method), spec.name, "pytorch", runner, spec, InputKind.FLOAT32)


@dataclass(frozen=True, eq=False)
class Answers(Generic[FoundT]):
    """What was found of each model for the images `names`, in order; `skipped` says why an image was left out.

    `sizes` has the number of images of each batch that one process read.
    """

    found: tuple[FoundT, ...]
    names: tuple[str, ...]
    skipped: dict[str, str]
    sizes: tuple[int, ...] = ()

    def batches(self) -> Iterator[slice]:
        """Yield the place of each batch among the images."""
        start = 0
        for size in self.sizes:
            yield slice(start, start + size)
            start += size


def predict_models(
    models: Sequence[EvalModel],
    source: ImageSource,
    settings: EvalSettings,
    advance: Advance,
    *,
    classes: Array | None = None,
    needs_labels: bool = False,
) -> Answers[Predictions]:
    """Run models over the images once; every process runs whole batches of its own and returns all answers.

    The source is iterated over once, in each process. Only `classes`, ascending, compete; None: all.
    `needs_labels` says whether the class of each image has to be known.
    """

    def predicted(batches: Batches) -> tuple[Predictions, ...]:
        runners = [model.runner for model in models]
        return predict_each(runners, batches, classes=classes, size=settings.batch)

    return _answered(models, predicted, _pass(source, advance, needs_labels=needs_labels), settings)


def embed_models(
    models: Sequence[EvalModel], source: ImageSource, settings: EvalSettings, advance: Advance
) -> Answers[Embeddings]:
    """The same for the embeddings of models; labels do not matter."""

    def embedded(batches: Batches) -> tuple[Embeddings, ...]:
        runners, outputs = [model.runner for model in models], [model.spec.embedding for model in models]
        return embed_each(runners, batches, outputs, size=settings.batch)

    return _answered(models, embedded, _pass(source, advance), settings)


def _pass(source: ImageSource, advance: Advance, *, needs_labels: bool = False) -> "ImagePass":
    return ImagePass(source, advance, check_labels=True, needs_labels=needs_labels, count=processes().count)


def _answered(
    models: Sequence[EvalModel],
    answer: Callable[[Batches], tuple[FoundT, ...]],
    seen: "ImagePass",
    settings: EvalSettings,
) -> Answers[FoundT]:
    """Pass the images of this process to the models, and join what all processes found."""
    workers = settings.workers or environment().usable_cpus
    files = _own(seen.source.files, settings.batch)
    loaded = batches_of(files, [model.view for model in models], settings.batch, workers=workers)
    found = answer(seen.feeds(loaded))
    parts = processes().gathered(Answers(found, tuple(seen.names), seen.skipped, tuple(seen.sizes)))
    answers = parts[0] if len(parts) == 1 else _joined(parts)
    require_images(answers.found[0].labels, models[0].runner.name)
    _check_alike(answers)
    return answers


def _own(files: Iterable[ImageFile], batch: int) -> Iterator[ImageFile]:
    """Yield the files of this process: of every `count` batches, one."""
    crew = processes()
    return (file for place, file in enumerate(files) if place // batch % crew.count == crew.index)


def _joined(parts: Sequence[Answers[FoundT]]) -> Answers[FoundT]:
    """Put the batches of all processes back into the order of the images."""
    turns = zip_longest(*(each.batches() for each in parts))
    places = [(part, at) for turn in turns for part, at in zip(parts, turn, strict=True) if at is not None]

    def whole(model: int) -> FoundT:
        shares = [(part.found[model], at) for part, at in places if at.stop > at.start]
        kind = type(parts[0].found[model])
        arrays = (
            np.concatenate([getattr(share, each.name)[at] for share, at in shares]) for each in fields(kind)
        )
        return kind(*arrays)

    found = tuple(whole(model) for model in range(len(parts[0].found)))
    names = tuple(name for part, at in places for name in part.names[at])
    skipped = {name: reason for part in parts for name, reason in part.skipped.items()}
    return Answers(found, names, skipped)


def _check_alike(answers: Answers[FoundT]) -> None:
    """Check that images of different processes agree in whether they have labels."""
    known = answers.found[0].labels != UNKNOWN
    if (known != known[0]).any():
        _refuse_odd(answers.names[int((known != known[0]).argmax())], labelled=bool(known[0]))


def _refuse_odd(name: str, *, labelled: bool) -> None:
    got, expected = ("no label", "one") if labelled else ("a label", "none")
    raise ImageError(name, got, f"{expected}, as the images before it", "--no-labels leaves out all")


@dataclass
class ImagePass:
    """The images of a pass: it passes them on, and notes their names and what was skipped.

    With `check_labels`, all of them have a label or none has; `needs_labels`: all. `count` processes share them.
    """

    source: ImageSource
    advance: Advance
    check_labels: bool = False
    needs_labels: bool = False
    count: int = 1
    labelled: bool | None = None
    names: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def feeds(self, loaded: Iterator[Batch]) -> Iterator[tuple[Sequence[Array], Array]]:
        """Yield the views and the labels of each batch."""
        for batch in loaded:
            self.skipped |= {self.source.name_of(each.path): each.reason for each in batch.skipped}
            self.sizes.append(len(batch.files))
            if batch.files:
                names = [self.source.name_of(file.path) for file in batch.files]
                if self.check_labels:
                    self._check_labels(batch.labels, names)
                self.names += names
                yield batch.views, batch.labels
            done = (len(self.names) + len(self.skipped)) * self.count
            self.advance(done, self.source.total)

    def _check_labels(self, labels: Array, names: Sequence[str]) -> None:
        known = labels != UNKNOWN
        if self.labelled is None:
            self.labelled = bool(known[0])
            if self.needs_labels and not self.labelled:
                hint = "without labels, a second model is needed to agree with"
                raise ImageError(names[0], "no label", "one folder per class, or labels in tar files", hint)
        if (known != self.labelled).any():
            _refuse_odd(names[int((known != self.labelled).argmax())], labelled=self.labelled)
