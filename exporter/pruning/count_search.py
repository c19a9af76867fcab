"""Search how many patches each layer keeps, without labels: what changes the dense model's answers least.

Steps start from the best shape of `exporter.schedule.rates` at equal cost. Half of the images are read for it; the
other half only say what was gained.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from exporter.models.base import PrunableViT
from exporter.pruning.divergence import (
    answers,
    divergences,
    divergences_from,
    gain_of,
    held_out,
)
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Gain, Schedule
from exporter.schedule.plan import keep_everything, saving_schedule
from exporter.schedule.policy import Policy
from exporter.schedule.rates import SHAPES, Curve, OutOfReachError

CANDIDATES = 24
# The first steps change a layer's share of what it prunes by about this factor, the last ones by its root.
STEP = 0.7


@dataclass(frozen=True)
class FoundCounts:
    """The schedule to take, and the gain over the best `shape`, whose own it is where none is shown."""

    schedule: Schedule
    shape: str
    gain: Gain

    @property
    def told(self) -> str:
        """One line of what was found."""
        taken = "searched counts" if self.gain.shown else f"counts {self.shape}"
        return f"{taken}: {self.gain.words}"


def search_counts(
    vit: PrunableViT,
    policy: Policy,
    images: Sequence[Tensor],
    *,
    target: float,
    cost: Callable[[Schedule], float],
    inter: np.ndarray | None = None,
    inter_sha256: str = "",
    candidates: int = CANDIDATES,
) -> FoundCounts:
    """Find the counts whose answers differ least from the dense model's, at a cost of at most the target.

    Args:
        vit: The dense model.
        policy: How patches are chosen and reduced; its seed draws the steps.
        images: Batches of preprocessed images [b, c, h, w], without labels.
        target: The target cost, in any unit.
        cost: The cost of a schedule, in the same unit.
        inter: Inter-layer importance [layers, patches], where the scorer needs it.
        inter_sha256: Its digest.
        candidates: Counts that are tried, beside the shapes.

    Raises:
        ImageError: There are too few images.
        OutOfReachError: No shape reaches the target.
        ScheduleError: The model gives neither logits nor an embedding.
    """
    read, unseen = held_out(images, "counts search", 0.5)
    dense = PrunedViT(vit, keep_everything(vit.spec)).eval()
    right = answers(dense, read)

    def planned(curve: Curve) -> Schedule:
        return saving_schedule(vit.spec, target, policy, curve, inter_sha256, cost=cost)

    def pruned(schedule: Schedule) -> PrunedViT:
        return PrunedViT(vit, schedule, inter).eval()

    def mean(schedule: Schedule) -> float:
        return float(divergences_from(right, pruned(schedule), read).mean())

    starts = _reached(planned)
    shape, start = min(starts.items(), key=lambda named: mean(named[1]))
    best = _climbed(start, planned, mean, candidates=candidates, seed=policy.seed)
    before = divergences(dense, pruned(start), unseen)
    after = divergences(dense, pruned(best), unseen)
    gain = gain_of(before, after, sum(map(len, read)))
    return FoundCounts(best if gain.shown else start, shape, gain)


def _reached(planned: Callable[[Curve], Schedule]) -> dict[str, Schedule]:
    """Return the schedule of each shape that reaches the target."""
    starts, missed = {}, []
    for shape, curve in SHAPES.items():
        try:
            starts[shape] = planned(curve)
        except OutOfReachError as error:
            missed.append(error)
    if not starts:
        raise min(missed, key=lambda error: error.least)
    return starts


def _climbed(
    best: Schedule,
    planned: Callable[[Curve], Schedule],
    mean: Callable[[Schedule], float],
    *,
    candidates: int,
    seed: int,
) -> Schedule:
    """Step from the best counts to better ones: a step changes the weights of layers smoothly, by three numbers."""
    rng, tried = np.random.default_rng(seed), {best.keep}
    weights, least = _weights(best), mean(best)
    for number in range(candidates):
        size = STEP * 0.5 ** (number / candidates)
        knots = rng.normal(0.0, size, 3)
        step = np.interp(np.linspace(0.0, 2.0, len(weights)), (0.0, 1.0, 2.0), knots)
        changed = weights * np.exp(step)
        schedule = planned(_curve_of(changed / changed.max()))
        if schedule.keep in tried:
            continue
        tried.add(schedule.keep)
        divergence = mean(schedule)
        if divergence < least:
            best, least, weights = schedule, divergence, changed / changed.max()
    return best


def _weights(schedule: Schedule) -> np.ndarray:
    """Return the share that each layer prunes of its patches, of the layers that prune; at most 1."""
    shares = np.array([1.0 - schedule.rates[layer - 1] for layer in schedule.pruning_layers])
    return np.maximum(shares / shares.max(), 1e-3)


def _curve_of(weights: np.ndarray) -> Curve:
    """Return the curve whose layers prune shares in these proportions, from first to last."""

    def curve(steepness: float, layer: int, end: int) -> float:
        # The layers that may prune are given as many weights as they are.
        places = np.interp(
            np.arange(1, layer + 1), np.linspace(1, max(end - 1, 2), len(weights)), weights
        )
        return float(np.prod(1.0 - steepness * places))

    return curve
