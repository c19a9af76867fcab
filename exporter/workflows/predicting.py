"""The predictions of several models over images in one pass, spread over the processes of a launcher."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from exporter.data.batches import Batch, batches_of
from exporter.data.images import UNKNOWN, ImageFile
from exporter.data.source import ImageSource
from exporter.errors import ImageError
from exporter.evaluation.accuracy import Predictions, predict_each, require_images
from exporter.evaluation.benchmark import environment
from exporter.processes import processes
from exporter.workflows.eval_models import EvalModel
from exporter.workflows.eval_settings import EvalSettings
from exporter.workflows.progress import Advance

__all__ = ["Answers", "predict_models"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Answers:
    """What each model predicts for the images `names`, in order; `skipped` says why an image was left out."""

    predictions: tuple[Predictions, ...]
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
) -> Answers:
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
    seen = _Seen(source, advance, needs_labels=needs_labels)
    workers = settings.workers or environment().usable_cpus
    files = _own(source.files, settings.batch)
    loaded = batches_of(files, [model.view for model in models], settings.batch, workers=workers)
    runners = [model.runner for model in models]
    found = predict_each(runners, seen.feeds(loaded), classes=classes, size=settings.batch)
    parts = processes().gathered(_Part(found, tuple(seen.names), seen.skipped, tuple(seen.sizes)))
    answers = parts[0].answers if len(parts) == 1 else _joined(parts)
    require_images(answers.predictions[0], runners[0].name)
    _check_alike(answers)
    return answers


def _own(files: Iterable[ImageFile], batch: int) -> Iterator[ImageFile]:
    """Yield the files of this process: of every `count` batches, one."""
    crew = processes()
    return (file for place, file in enumerate(files) if place // batch % crew.count == crew.index)


@dataclass(frozen=True, eq=False)
class _Part:
    """The answers of one process; `sizes` has the number of images of each batch."""

    predictions: tuple[Predictions, ...]
    names: tuple[str, ...]
    skipped: dict[str, str]
    sizes: tuple[int, ...]

    @property
    def answers(self) -> Answers:
        return Answers(self.predictions, self.names, self.skipped)

    def batches(self) -> Iterator[slice]:
        """Yield the place of each batch among the images."""
        start = 0
        for size in self.sizes:
            yield slice(start, start + size)
            start += size


def _joined(parts: Sequence[_Part]) -> Answers:
    """Put the batches of all processes back into the order of the images."""
    turns = zip_longest(*(each.batches() for each in parts))
    places = [(part, at) for turn in turns for part, at in zip(parts, turn, strict=True) if at is not None]

    def whole(model: int, field: str) -> Array:
        return np.concatenate(
            [getattr(part.predictions[model], field)[at] for part, at in places if at.stop > at.start]
        )

    predictions = tuple(
        Predictions(whole(model, "best"), whole(model, "labels"))
        for model in range(len(parts[0].predictions))
    )
    names = tuple(name for part, at in places for name in part.names[at])
    skipped = {name: reason for part in parts for name, reason in part.skipped.items()}
    return Answers(predictions, names, skipped)


def _check_alike(answers: Answers) -> None:
    """Check that images of different processes agree in whether they have labels."""
    known = answers.predictions[0].labels != UNKNOWN
    if (known != known[0]).any():
        _refuse_odd(answers.names[int((known != known[0]).argmax())], labelled=bool(known[0]))


def _refuse_odd(name: str, *, labelled: bool) -> None:
    got, expected = ("no label", "one") if labelled else ("a label", "none")
    raise ImageError(name, got, f"{expected}, as the images before it", "--no-labels leaves out all")


@dataclass
class _Seen:
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
                raise ImageError(names[0], "no label", "one folder a class, or labels in tar files", hint)
        if (known != self.labelled).any():
            _refuse_odd(names[int((known != self.labelled).argmax())], labelled=self.labelled)
