"""The cheap stage of a search: accuracy of the PyTorch models on few images, more for those that are left."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from exporter.data.images import ImageFolder
from exporter.workflows.progress import Advance
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.costs import Cost, Estimates
from exporter.workflows.tuning.halving import FEWEST, evenly, front, loss_of, margin_of, ranked, survivors

__all__ = ["FIRST", "AccuracyMeter", "Answers", "narrowed", "parts", "refined"]

Array = np.ndarray[Any, Any]

# Images of the first stage; each further one doubles them.
FIRST = 64
# The step between finer shares.
FINER = 0.025
# No share is larger.
LARGEST = 0.95
# The share of the time for all stages; the rest is for finer shares.
HALVING = 0.7


@dataclass(frozen=True, eq=False)
class Answers:
    """Which images of the search half each candidate has right so far, in the order to be timed; and the model."""

    dense: Array
    hits: Mapping[Candidate, Array]

    def loss(self, candidate: Candidate) -> float:
        """Return the loss of a candidate against the model, as a share."""
        lost, gained = loss_of(self.dense, self.hits[candidate])
        return (lost - gained) / len(self.dense)

    def qualifies(self, max_drop: float | None) -> Candidate | None:
        """Return a candidate whose loss with its errors is within the limit, if there is one."""
        limit = 1.0 if max_drop is None else max_drop
        return next((each for each, own in self.hits.items() if margin_of(self.dense, own) <= limit), None)

    def fewer(self, count: int, costs: Mapping[Candidate, float]) -> list[Candidate]:
        """Return at most so many candidates: the first ones, and, once there are answers, as many of the front."""
        if len(self.hits) <= count or not len(self.dense):
            return list(self.hits)[:count]
        along = evenly(front(self.hits, self.loss, costs), self.loss, costs, count // 2)
        others = [each for each in self.hits if each not in along]
        return [*others[: count - len(along)], *along]


@dataclass(frozen=True, eq=False)
class AccuracyMeter:
    """Says which images a candidate has right by a metric: their label, or the unpruned model's class.

    `seen` has all candidates that were asked for.
    """

    bench: Bench
    images: ImageFolder
    metric: str
    seen: set[Candidate] = field(default_factory=set)

    def right(self, candidate: Candidate, part: slice | None = None) -> Array:
        """Return bool [images] for a part of the images, or for all."""
        part = part or slice(0, len(self.images.files))
        name = f"{part.start} to {part.stop} of {len(self.images.files)}"
        files = ImageFolder(self.images.root, self.images.files[part])
        self.seen.add(candidate.on(""))
        found = self.bench.predicted(candidate, files, name)
        if self.metric == "top1":
            return found.hits[:, 0]
        return found.best[:, 0] == self.bench.predicted(UNPRUNED, files, name).best[:, 0]

    def so_far(self, candidate: Candidate, images: int) -> Array:
        """Return bool [images] for the first so many of the images, which are the end of a stage."""
        stages = [part for part in parts(len(self.images.files)) if part.stop <= images]
        return np.concatenate([self.right(candidate, part) for part in stages])


def narrowed(
    meter: AccuracyMeter,
    some: Sequence[Candidate],
    estimates: Estimates,
    *,
    max_drop: float | None,
    advance: Advance,
) -> Answers:
    """Halve the candidates, stage by stage, until all images of the search half are seen or the time is spent.

    Each stage has an equal share of the time. One that has none for six candidates is left out, unless nothing
    qualifies yet: on few images nothing can.

    Args:
        meter: Has the search half, whose first images are a fair sample of it.
        some: The candidates, the first ones first where there is no time for all.
        estimates: What there is time for; a part of it is left for finer shares.
        max_drop: The largest loss, as a share; None: as little as possible.
        advance: Shows progress in stages.
    """
    ledger, every = meter.bench.ledger, list(parts(len(meter.images.files)))
    begun_s, budget = ledger.spent_s, estimates.budget
    until_s = begun_s + HALVING * (budget.accuracy_until_s(every[-1].stop) - begun_s)
    costs = {each: estimates.cost(each) for each in some}
    answers = Answers(np.zeros(0, bool), {each: np.zeros(0, bool) for each in some})
    for done, part in enumerate(every):
        stage_s = (until_s - ledger.spent_s) / (len(every) - done)
        count = int(stage_s / ((part.stop - part.start) * budget.image_s))
        enough = min(len(answers.hits), 1 if answers.qualifies(max_drop) is None else FEWEST)
        if not answers.hits or (done and count < enough):
            break
        left = answers.fewer(max(1, count), costs)
        dense = np.concatenate([answers.dense, meter.right(UNPRUNED, part)])
        hits = {each: np.concatenate([answers.hits[each], meter.right(each, part)]) for each in left}
        answers = Answers(dense, {each: hits[each] for each in survivors(hits, dense, costs, max_drop)})
        advance(done + 1, len(every))
    return _in_order(answers.dense, answers.hits, estimates.cost, max_drop)


def refined(
    meter: AccuracyMeter,
    answers: Answers,
    estimates: Estimates,
    *,
    max_drop: float | None,
    advance: Advance,
) -> Answers:
    """Try finer shares on as many images, one by one, while there is time: beyond the best, then in the gaps."""
    ledger, images, cost, budget = meter.bench.ledger, len(answers.dense), estimates.cost, estimates.budget
    hits, tried = dict(answers.hits), 0
    while ledger.spent_s + images * budget.image_s <= budget.accuracy_until_s(images):
        finer = (each for each in _finer(answers, cost, budget.finalists) if each not in hits)
        found = next((each for each in finer if meter.bench.schedule(each) is not None), None)
        if found is None:
            break
        hits[found] = meter.so_far(found, images)
        answers, tried = _in_order(answers.dense, hits, cost, max_drop), tried + 1
        advance(tried, None)
    return answers


def _finer(answers: Answers, cost: Cost, finalists: int) -> Iterator[Candidate]:
    """Yield candidates of larger shares than the finalists, then those in the largest gaps of the front."""
    for each in list(answers.hits)[:finalists]:
        if each.mac_reduction:
            yield _saving(each, each.mac_reduction + FINER)
    costs = {each: cost(each) for each in answers.hits}
    along = front(answers.hits, answers.loss, costs)
    for fast, slow in sorted(pairwise(along), key=lambda pair: costs[pair[0]] - costs[pair[1]]):
        if fast.mac_reduction and slow.mac_reduction:
            middle = FINER * round((fast.mac_reduction + slow.mac_reduction) / 2 / FINER)
            between = (_saving(each, middle) for each in (slow, fast))
            yield from (each for each in between if costs[fast] < cost(each) < costs[slow])


def _saving(candidate: Candidate, share: float) -> Candidate:
    return replace(candidate, mac_reduction=min(round(share, 6), LARGEST))


def _in_order(dense: Array, hits: Mapping[Candidate, Array], cost: Cost, max_drop: float | None) -> Answers:
    order = ranked(hits, dense, {each: cost(each) for each in hits}, max_drop)
    return Answers(dense, {each: hits[each] for each in order})


def parts(total: int) -> Iterator[slice]:
    """Yield the images of each stage; each stage doubles those seen before."""
    start, end = 0, min(FIRST, total)
    while start < total:
        yield slice(start, end)
        start, end = end, min(2 * end, total)
