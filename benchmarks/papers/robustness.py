"""How far the chosen split depends on noise in the measured accuracies: a Monte-Carlo report (MAP, section 5)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exporter.depth.predictor import CrossValidation, Sample, Split, accuracies_of, best_split, fit, splits

__all__ = ["Robustness", "robustness"]

Array = np.ndarray[Any, Any]

# The standard deviation of the noise in points, and the most that is added, in deviations.
DEVIATION, MOST = 0.1, 5


@dataclass(frozen=True)
class Robustness:
    """The split without noise, and the shares of trials that find it, one layer less or more attention, or others.

    `mean_attention` and `std_attention` are in layers. `most_lost` is what a split with one attention layer less or
    more loses at most, in points, as the samples without noise predict it.
    """

    split: Split
    same: float
    one_off: float
    further: float
    mean_attention: float
    std_attention: float
    most_lost: float


def robustness(
    samples: Sequence[Sample], depth: int, units: int, *, trials: int = 500, seed: int = 0
) -> Robustness:
    """Add clip(N(0, σ), ±5σ) to every accuracy, choose degree and split again, and compare.

    Args:
        samples: The measured models.
        depth: L, the model's blocks.
        units: K, the number of units removed.
        trials: Draws of noise, each followed by a new fit.
        seed: Of the noise.

    Raises:
        DepthError: There are too few samples, or the budget is not in 0 to 2L.
    """
    folds, accuracies = CrossValidation(samples), accuracies_of(samples)

    def chosen(noise: Array) -> Split:
        noisy = [
            replace(sample, accuracy=float(value))
            for sample, value in zip(samples, accuracies + noise, strict=True)
        ]
        return best_split(fit(noisy, folds.best(accuracies + noise)), depth, units)

    predictor = fit(samples, folds.best(accuracies))
    split = best_split(predictor, depth, units)
    near = (each for each in splits(predictor, depth, units) if abs(each.attention - split.attention) == 1)
    draws = np.random.default_rng(seed).normal(0, 1, (trials, len(samples)))
    noises = DEVIATION * draws.clip(-MOST, MOST)
    found = np.array([chosen(noise).attention for noise in noises])
    off = np.abs(found - split.attention)
    return Robustness(
        split=split,
        same=float(np.mean(off == 0)),
        one_off=float(np.mean(off == 1)),
        further=float(np.mean(off > 1)),
        mean_attention=float(found.mean()),
        std_attention=float(found.std()),
        most_lost=split.accuracy - min(each.accuracy for each in near),
    )
