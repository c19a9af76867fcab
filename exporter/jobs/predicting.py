"""Models that are ready to run, and what several of them predict or embed over images in one pass."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ImageError
from exporter.core.base.machine import environment
from exporter.core.base.progress import Advance
from exporter.core.base.records import ModelSpec
from exporter.core.base.targets import PYTORCH, Runtime
from exporter.core.base.tensor_names import LOGITS, Array
from exporter.core.base.vocabulary import InputKind
from exporter.core.verify.runner import PartRunner, Runner
from exporter.data.batches import View, batches_of
from exporter.data.images import ImageFolder
from exporter.engines.choice import RunSettings, runner_for, runtime_for
from exporter.measure.accuracy import Predictions, answer_each, best_classes
from exporter.processes import Processes, processes

if TYPE_CHECKING:
    from exporter.core.prune.pruned_vit import PrunedViT


@dataclass(frozen=True, eq=False)
class EvalModel:
    """A model on its runtime: what the result calls it, its file, what it is, and how it takes images.

    One that is `dynamic` has activation ranges of each batch. Its answers are those of images one by one, which
    depend on no other image.
    """

    name: str
    source: str
    runtime: Runtime
    runner: Runner
    spec: ModelSpec
    input_kind: InputKind
    dynamic: bool = False

    @property
    def answering(self) -> Runner:
        """What gives its answers, whatever the batch."""
        return PartRunner(self.runner, (1,)) if self.dynamic else self.runner

    def per_run(self, batch: int) -> int:
        """Return how many images of a batch run together for their answers."""
        return 1 if self.dynamic else batch

    @property
    def view(self) -> View:
        """What it takes of an image."""
        return View(self.spec.preprocessing, self.input_kind)


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


def reference_model(
    pruned: "PrunedViT",
    name: str,
    *,
    threads: int = 0,
    input_kind: InputKind = InputKind.FLOAT32,
) -> EvalModel:
    """Return a model in PyTorch.

    Args:
        pruned: The pruned model, or the dense one, which keeps all patches.
        name: What the result calls it.
        threads: CPU threads within an operator; 0 keeps PyTorch's setting.
        input_kind: How it takes images.
    """
    from exporter.core.verify.reference import reference_runner  # noqa: PLC0415  (needs PyTorch)

    spec = pruned.vit.spec
    runner = reference_runner(pruned, input_kind, threads=threads or None)
    return EvalModel(name, spec.name, PYTORCH, runner, spec, input_kind)


@dataclass(frozen=True, eq=False)
class Answers:
    """What each model answers for the images `names`, in order: an array [images, …].

    `labels` [images] are the classes of the images, UNKNOWN where they are not known. `skipped` says why an image
    was left out.
    """

    arrays: tuple[Array, ...]
    labels: Array
    names: tuple[str, ...]
    skipped: dict[str, str]

    @property
    def predictions(self) -> tuple[Predictions, ...]:
        """The predicted classes, where these are the answers."""
        return tuple(Predictions(best, self.labels) for best in self.arrays)


def predict_models(
    models: Sequence[EvalModel],
    source: ImageFolder,
    batch: int,
    advance: Advance,
    *,
    classes: Array | None = None,
    crew: Processes | None = None,
) -> Answers:
    """Run models over the images once, and return the `predictions` of each.

    Every process runs whole batches of its own, and returns all answers.

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
    outputs, best = [LOGITS] * len(models), partial(best_classes, classes=classes)
    return _answered(
        models, outputs, best, source, advance, batch=batch, crew=crew or processes()
    )


def embed_models(
    models: Sequence[EvalModel],
    outputs: Sequence[str],
    source: ImageFolder,
    batch: int,
    advance: Advance,
    *,
    crew: Processes | None = None,
) -> Answers:
    """Run models over the images once, and return the vectors of an output of each, in float32.

    The arguments, the sharing among processes and the errors are those of `predict_models`.
    """

    def vectors(values: Array) -> Array:
        return values.astype(np.float32)

    return _answered(
        models, outputs, vectors, source, advance, batch=batch, crew=crew or processes()
    )


def _filled(models: Sequence[EvalModel], source: ImageFolder, batch: int) -> int:
    """Return the size that a smaller batch is filled up to: an engine's own, else no more than there are images."""
    fixed = any(model.runtime.engines for model in models)
    return batch if fixed else min(batch, len(source.files))


def _answered(
    models: Sequence[EvalModel],
    outputs: Sequence[str],
    row_of: Callable[[Array], Array],
    source: ImageFolder,
    advance: Advance,
    *,
    batch: int,
    crew: Processes,
) -> Answers:
    """Pass the images of this process to the models, and join the answers of all processes."""
    names, skipped = list[str](), dict[str, str]()
    views, workers = [model.view for model in models], environment().usable_cpus

    def feeds() -> Iterator[tuple[Sequence[Array], Array]]:
        files = crew.share(source.files, batch)
        for loaded in batches_of(files, views, batch, workers=workers):
            for path, reason in loaded.skipped.items():
                skipped[source.name_of(path)] = reason
            names.extend(source.name_of(file.path) for file in loaded.files)
            if loaded.files:
                yield loaded.views, loaded.labels
            done = (len(names) + len(skipped)) * crew.count
            advance(done, len(source.files))

    runners, size = (
        [model.answering for model in models],
        _filled(models, source, batch),
    )
    arrays, labels = answer_each(runners, feeds(), outputs, row_of, size=size)
    parts = crew.gathered(Answers(arrays, labels, tuple(names), skipped))
    if not any(part.names for part in parts):
        raise ImageError(
            models[0].runner.name, "no image", "at least one that can be read"
        )
    return _joined(parts)


def _joined(parts: Sequence[Answers]) -> Answers:
    """Put the answers of all processes one after the other; there is one."""
    filled = [part for part in parts if part.names]
    by_model = zip(*(part.arrays for part in filled), strict=True)
    return Answers(
        arrays=tuple(np.concatenate(shares) for shares in by_model),
        labels=np.concatenate([part.labels for part in filled]),
        names=tuple(name for part in parts for name in part.names),
        skipped={
            name: reason for part in parts for name, reason in part.skipped.items()
        },
    )
