"""A dense and a pruned model at several batch sizes, and what choosing patches costs there."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from exporter.evaluation.benchmark.settings import BenchSettings
from exporter.evaluation.benchmark.timing import (
    Clock,
    Comparison,
    Ratio,
    Throughput,
    compare_speed,
    ratio_of,
    throughput,
)
from exporter.records import Pair
from exporter.runtimes.base import Runner
from exporter.schedule.macs import MacCount
from exporter.tensor_names import IMAGES

__all__ = ["AtBatch", "Contestants", "Selection", "break_even", "measure_batches", "resized"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Contestants:
    """The models of a benchmark; `sliced` is the pruned one with plain slices, None where it is not measured."""

    dense: Runner
    pruned: Runner
    sliced: Runner | None
    macs: Pair[MacCount]


@dataclass(frozen=True)
class Selection:
    """What choosing costs: `cost` is the pruned model's time over the sliced one's.

    `ceiling` is the dense model over the sliced one: the speed-up that these token counts would have for free.
    """

    sliced: Throughput
    cost: Ratio
    ceiling: Comparison


@dataclass(frozen=True)
class AtBatch:
    """One batch size. `selection` is None where it was not measured."""

    batch: int
    throughput: Pair[Throughput]
    comparison: Comparison
    selection: Selection | None


def measure_batches(
    models: Contestants, images: Array, settings: BenchSettings, clock: Clock = time.perf_counter
) -> Iterator[AtBatch]:
    """Measure all models at each batch size, interleaved.

    Args:
        models: Their runners and multiply-adds.
        images: [n, 3, H, W], as the models take them; repeated or cut to each batch.
        settings: Batch sizes, rounds, warm-up.
        clock: Seconds, from any start.
    """
    runners: Mapping[str, Runner] = {"dense": models.dense, "pruned": models.pruned}
    if models.sliced is not None:
        runners = {**runners, "sliced": models.sliced}
    with ExitStack() as stack:
        for runner in runners.values():
            stack.enter_context(runner)
        for batch in settings.batches:
            times = throughput(
                runners,
                {IMAGES: resized(images, batch)},
                batch=batch,
                rounds=settings.rounds,
                warmup=settings.warmup,
                clock=clock,
            )
            yield _at_batch(batch, times, models.macs)


class Compared(Protocol):
    """A dense and a pruned model at one batch size."""

    @property
    def batch(self) -> int:
        """Images a run."""

    @property
    def comparison(self) -> Comparison:
        """The dense model over the pruned one."""


def break_even(measured: Sequence[Compared]) -> int | None:
    """The least batch from which on every measured one is faster pruned, by the quartiles; None without one."""
    least = None
    for each in sorted(measured, key=lambda each: each.batch, reverse=True):
        if each.comparison.outcome != "faster":
            break
        least = each.batch
    return least


def resized(images: Array, batch: int) -> Array:
    """So many images: the first ones, over again where there are fewer."""
    return np.resize(images, (batch, *images.shape[1:]))


def _at_batch(batch: int, times: Mapping[str, Throughput], macs: Pair[MacCount]) -> AtBatch:
    dense, pruned, sliced = times["dense"], times["pruned"], times.get("sliced")
    selection = None
    if sliced is not None:
        # Slices score nothing, so the sliced model has the network's multiply-adds alone.
        ceiling = compare_speed(dense, sliced, (macs.dense.total, macs.pruned.network))
        selection = Selection(sliced, ratio_of(pruned, sliced), ceiling)
    comparison = compare_speed(dense, pruned, (macs.dense.total, macs.pruned.total))
    return AtBatch(batch, Pair(dense, pruned), comparison, selection)
