"""The cheap stage of a search: accuracy of the PyTorch models on few images, more for those that are left."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exporter.data.images import ImageFolder
from exporter.workflows.progress import Advance
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.halving import ranked, survivors

__all__ = ["FIRST", "Answers", "Examiner", "narrowed", "parts", "with_finer_shares"]

Array = np.ndarray[Any, Any]

# Images of the first stage; each further one doubles them.
FIRST = 64
# Of the best candidates, shares that are larger by so much are tried too.
FINER = 0.025


@dataclass(frozen=True, eq=False)
class Answers:
    """Which images of the search half each candidate has right so far, in the order to be timed; and the model."""

    dense: Array
    hits: Mapping[Candidate, Array]


@dataclass(frozen=True, eq=False)
class Examiner:
    """Says which images a candidate has right by a metric: their label, or the unpruned model's class."""

    bench: Bench
    images: ImageFolder
    metric: str

    def right(self, candidate: Candidate, part: slice | None = None) -> Array:
        """Return bool [images] for a part of the images, or for all."""
        part = part or slice(0, len(self.images.files))
        name = f"{part.start} to {part.stop} of {len(self.images.files)}"
        files = ImageFolder(self.images.root, self.images.files[part])
        found = self.bench.predicted(candidate, files, name)
        if self.metric == "top1":
            return found.hits[:, 0]
        return found.best[:, 0] == self.bench.predicted(UNPRUNED, files, name).best[:, 0]

    def so_far(self, candidate: Candidate, images: int) -> Array:
        """Return bool [images] for the first so many of the images, which are the end of a stage."""
        stages = [part for part in parts(len(self.images.files)) if part.stop <= images]
        return np.concatenate([self.right(candidate, part) for part in stages])


def narrowed(
    examiner: Examiner,
    some: Sequence[Candidate],
    *,
    max_drop: float | None,
    budget_s: float,
    advance: Advance,
) -> Answers:
    """Halve the candidates, stage by stage, until all images of the search half are seen or the time is spent.

    Args:
        examiner: Has the search half, whose first images are a fair sample of it.
        some: The candidates.
        max_drop: The largest loss, as a share; None: as little as possible.
        budget_s: No stage begins after so much measured time.
        advance: Shows progress in stages.
    """
    bench, every = examiner.bench, list(parts(len(examiner.images.files)))
    macs = {each: bench.macs(each) for each in some}
    dense, hits = np.zeros(0, bool), {each: np.zeros(0, bool) for each in some}
    for done, part in enumerate(every):
        if not hits or (done and bench.ledger.spent_s > budget_s):
            break
        dense = np.concatenate([dense, examiner.right(UNPRUNED, part)])
        hits = {each: np.concatenate([own, examiner.right(each, part)]) for each, own in hits.items()}
        hits = {each: hits[each] for each in survivors(hits, dense, macs, max_drop)}
        advance(done + 1, len(every))
    return _in_order(bench, dense, hits, max_drop)


def with_finer_shares(
    examiner: Examiner, answers: Answers, some: Sequence[Candidate], max_drop: float | None, advance: Advance
) -> Answers:
    """Try, beside some of the candidates, those of a little larger share, on as many images."""
    larger = [
        replace(each, mac_reduction=round(each.mac_reduction + FINER, 6))
        for each in some
        if each.mac_reduction
    ]
    added = [
        each for each in larger if each not in answers.hits and examiner.bench.schedule(each) is not None
    ]
    hits = dict(answers.hits)
    for done, each in enumerate(added):
        hits[each] = examiner.so_far(each, len(answers.dense))
        advance(done + 1, len(added))
    return _in_order(examiner.bench, answers.dense, hits, max_drop)


def _in_order(bench: Bench, dense: Array, hits: Mapping[Candidate, Array], max_drop: float | None) -> Answers:
    order = ranked(hits, dense, {each: bench.macs(each) for each in hits}, max_drop)
    return Answers(dense, {each: hits[each] for each in order})


def parts(total: int) -> Iterator[slice]:
    """Yield the images of each stage; each stage doubles those seen before."""
    start, end = 0, min(FIRST, total)
    while start < total:
        yield slice(start, end)
        start, end = end, min(2 * end, total)
