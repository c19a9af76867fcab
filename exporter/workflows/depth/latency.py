"""Find the best pair of units and rho within a latency that is measured: every candidate is lowered and timed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from exporter.depth.joint import Pair
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.depth.models import SmallerModels
from exporter.workflows.measuring import Lowered, lowered, noise, timed
from exporter.workflows.progress import Stages
from exporter.workflows.recipes.job import Job

__all__ = ["PairClock", "Timed", "within_ms"]

Array = np.ndarray[Any, Any]

# A candidate at most this share below the latency ends the search.
CLOSE_ENOUGH = 0.03
# So do this many measurements.
MEASUREMENTS = 6


@dataclass(frozen=True)
class Timed:
    """A pair as a lowered model, timed in one run with the whole model; times are medians of a batch."""

    pair: Pair
    median_ms: float
    dense_ms: float


def within_ms(
    find: Callable[[float], Pair], time: Callable[[Pair], Timed], dense_gmacs: float, max_ms: float
) -> tuple[Timed, ...]:
    """Time pairs until one is just within a latency, and return all in the order tried.

    Time is close to linear in multiply-adds: each candidate has as many as the time of the one before suggests.

    Args:
        find: Returns the best pair of so many GMACs, or the cheapest one if it has more.
        time: Measures a pair.
        dense_gmacs: Those of the whole model; the first candidate may have as many.
        max_ms: The latency of a batch.
    """
    tried: list[Timed] = []
    most = dense_gmacs
    while len(tried) < MEASUREMENTS:
        pair = find(most)
        if any(pair == each.pair for each in tried):
            break
        tried.append(time(pair))
        share = tried[-1].median_ms / max_ms
        if 1 - CLOSE_ENOUGH <= share <= 1:
            break
        most = pair.gmacs / share * (1 - CLOSE_ENOUGH / 2)
    return tuple(tried)


@dataclass(frozen=True, eq=False)
class PairClock:
    """Lowers pairs with the whole model's weights for the job's target, and times each beside the whole model."""

    job: Job
    models: SmallerModels
    stages: Stages

    def __call__(self, pair: Pair) -> Timed:
        """Time a pair."""
        name = f"{pair.attention} + {pair.activation} units, rho {pair.rho:.3f}"
        with self.stages.stage(name):
            smaller = self._lowered(self.models.pruned(self._vit, pair.counts, pair.rho))
            times = timed({"dense": self._dense, "pair": smaller}, self._images, self.job.measuring)
        return Timed(pair, times["pair"].median_ms, times["dense"].median_ms)

    @cached_property
    def _vit(self) -> PrunableViT:
        return steps.load_model(self.job.model)

    @cached_property
    def _dense(self) -> Lowered:
        return self._lowered(steps.dense(self._vit))

    @cached_property
    def _images(self) -> Array:
        return noise(self._vit.spec, str(InputKind.FLOAT32), self.job.measuring.batch)

    def _lowered(self, pruned: PrunedViT) -> Lowered:
        ranges = steps.range_images(
            self.job.images, self._vit.spec, InputKind.FLOAT32, self.job.lowering.target
        )
        return lowered(pruned, [self.job.lowering.target], InputKind.FLOAT32, ranges)[0]
