"""The cheap stage of a search: accuracy of the PyTorch models on few images, more for those that are left."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from exporter.data.images import ImageFolder
from exporter.records import Schedule
from exporter.workflows.progress import Advance
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.bench import DENSE, Bench
from exporter.workflows.tuning.halving import survivors

__all__ = ["Answers", "Stage", "narrowed", "right"]

Array = np.ndarray[Any, Any]

# Images of the first stage; each further one doubles them.
FIRST = 64


@dataclass(frozen=True)
class Stage:
    """What a stage left: images seen so far, candidates before and after, and those that were tried."""

    images: int
    before: int
    left: tuple[Candidate, ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """Which images of the search half each candidate has right so far, and the unpruned model."""

    dense: Array
    hits: Mapping[Candidate, Array]


def right(predicted: Array, labels: Array, dense: Array, metric: str) -> Array:
    """Return which images count as right: by their label, or by the class that the unpruned model gives them."""
    return predicted == (labels if metric == "top1" else dense)


def narrowed(
    bench: Bench,
    schedules: Mapping[Candidate, Schedule],
    search: ImageFolder,
    *,
    metric: str,
    max_drop: float | None,
    budget_s: float,
    advance: Advance,
) -> tuple[Answers, tuple[Stage, ...]]:
    """Halve the candidates, stage by stage, until all images of the search half are seen or the time is spent.

    Args:
        bench: Measures.
        schedules: Of all candidates.
        search: The search half; its first images are a fair sample.
        metric: "top1" or "agreement".
        max_drop: The largest loss, as a share; None: as little as possible.
        budget_s: No stage begins after so much measured time.
        advance: Shows progress in stages.
    """
    macs = {key: bench.macs(schedule) for key, schedule in schedules.items()}
    seen: dict[Candidate, list[Array]] = {key: [] for key in schedules}
    whole: list[Array] = []
    stages: list[Stage] = []
    parts = list(_parts(len(search.files)))
    for done, (start, end) in enumerate(parts):
        if done and bench.ledger.spent_s > budget_s:
            break
        files, part = search.files[start:end], f"search {start} to {end}"
        labels = bench.labels(files, part)
        dense = bench.predicted(DENSE, files, part, lambda: bench.reference(None))
        whole.append(right(dense, labels, dense, metric))
        for key, found in seen.items():
            model = partial(bench.reference, schedules[key])
            found.append(right(bench.predicted(key.label, files, part, model), labels, dense, metric))
        hits = {key: np.concatenate(found) for key, found in seen.items()}
        left = survivors(hits, np.concatenate(whole), macs, max_drop)
        stages.append(Stage(end, len(seen), tuple(left)))
        advance(done + 1, len(parts))
        seen = {key: seen[key] for key in left}
        if not left:
            break
    return Answers(np.concatenate(whole), {key: np.concatenate(found) for key, found in seen.items()}), tuple(
        stages
    )


def _parts(total: int) -> Iterator[tuple[int, int]]:
    """Yield the images of each stage; each stage doubles those seen before."""
    start, end = 0, min(FIRST, total)
    while start < total:
        yield start, end
        start, end = end, min(2 * end, total)
