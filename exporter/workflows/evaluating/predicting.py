"""The predictions, or the embeddings, of several models over images in one pass.

The images are spread over the processes of a launcher.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import Any, Generic, TypeVar

import numpy as np

from exporter.data.batches import Batch, batches_of
from exporter.data.images import UNKNOWN, ImageFile
from exporter.data.source import ImageSource
from exporter.errors import ImageError
from exporter.evaluation.accuracy import Batches, Predictions, predict_each, require_images
from exporter.evaluation.benchmark import environment
from exporter.evaluation.loss import Embeddings, embed_each
from exporter.processes import processes
from exporter.workflows.evaluating.models import EvalModel
from exporter.workflows.evaluating.settings import EvalSettings
from exporter.workflows.progress import Advance

__all__ = ["Answers", "embed_models", "predict_models"]

Array = np.ndarray[Any, Any]
FoundT = TypeVar("FoundT", Predictions, Embeddings)


@dataclass(frozen=True, eq=False)
class Answers(Generic[FoundT]):
    """What was found of each model for the images `names`, in order; `skipped` says why an image was left out."""

    found: tuple[FoundT, ...]
    names: tuple[str, ...]
    skipped: dict[str, str]


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

    Args:
        models: They see the same images in turns.
        source: Iterated over once, in each process.
        settings: Images of a batch, and threads that decode.
        advance: Shows progress.
        classes: Ascending; only these compete. None: all.
        needs_labels: Whether the class of each image has to be known.

    Raises:
        ImageError: There are no images, or their labels do not fit the models.
        UserError: A model gives no finite logits.
    """

    def predicted(batches: Batches) -> tuple[Predictions, ...]:
        runners = [model.runner for model in models]
        return predict_each(runners, batches, classes=classes, size=settings.batch)

    return _answered(models, predicted, _ImagePass(source, advance, needs_labels=needs_labels), settings)


def embed_models(
    models: Sequence[EvalModel], source: ImageSource, settings: EvalSettings, advance: Advance
) -> Answers[Embeddings]:
    """The same for the embeddings of models; labels do not matter.

    Raises:
        ImageError: There are no images.
        UserError: A model gives no finite embedding.
    """

    def embedded(batches: Batches) -> tuple[Embeddings, ...]:
        runners, outputs = [model.runner for model in models], [model.spec.embedding for model in models]
        return embed_each(runners, batches, outputs, size=settings.batch)

    return _answered(models, embedded, _ImagePass(source, advance, needs_labels=False), settings)


def _answered(
    models: Sequence[EvalModel],
    answer: Callable[[Batches], tuple[FoundT, ...]],
    seen: "_ImagePass",
    settings: EvalSettings,
) -> Answers[FoundT]:
    """Pass the images of this process to the models, and join what all processes found."""
    workers = settings.workers or environment().usable_cpus
    files = _own(seen.source.files, settings.batch)
    loaded = batches_of(files, [model.view for model in models], settings.batch, workers=workers)
    found = answer(seen.feeds(loaded))
    parts = processes().gathered(_Part(found, tuple(seen.names), seen.skipped, tuple(seen.sizes)))
    answers = parts[0].answers if len(parts) == 1 else _joined(parts)
    require_images(answers.found[0].labels, models[0].runner.name)
    _check_alike(answers)
    return answers


def _own(files: Iterable[ImageFile], batch: int) -> Iterator[ImageFile]:
    """Yield the files of this process: of every `count` batches, one."""
    crew = processes()
    return (file for place, file in enumerate(files) if place // batch % crew.count == crew.index)


@dataclass(frozen=True, eq=False)
class _Part(Generic[FoundT]):
    """The answers of one process; `sizes` has the number of images of each batch."""

    found: tuple[FoundT, ...]
    names: tuple[str, ...]
    skipped: dict[str, str]
    sizes: tuple[int, ...]

    @property
    def answers(self) -> Answers[FoundT]:
        return Answers(self.found, self.names, self.skipped)

    def batches(self) -> Iterator[slice]:
        """Yield the place of each batch among the images."""
        start = 0
        for size in self.sizes:
            yield slice(start, start + size)
            start += size


def _joined(parts: Sequence[_Part[FoundT]]) -> Answers[FoundT]:
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
class _ImagePass:
    """The images of a pass: it passes them on, and notes their names and what was skipped."""

    source: ImageSource
    advance: Advance
    needs_labels: bool
    labelled: bool | None = None
    names: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def feeds(self, loaded: Iterator[Batch]) -> Iterator[tuple[Sequence[Array], Array]]:
        """Yield the views and the labels of each batch.

        Raises:
            ImageError: Only some images have a label, or none has where labels are needed.
        """
        for batch in loaded:
            self.skipped |= {self.source.name_of(each.path): each.reason for each in batch.skipped}
            self.sizes.append(len(batch.files))
            if batch.files:
                names = [self.source.name_of(file.path) for file in batch.files]
                self._check_labels(batch.labels, names)
                self.names += names
                yield batch.views, batch.labels
            done = (len(self.names) + len(self.skipped)) * processes().count
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
