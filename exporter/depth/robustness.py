"""How far the chosen split depends on noise in the measured accuracies: a Monte-Carlo report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exporter.depth.predictor import CrossValidation, Sample, accuracies_of, fit
from exporter.depth.search import Split, best_split
from exporter.settings import Natural, Points, Positive, Settings, option

__all__ = ["NoiseSettings", "Robustness", "deviations_of", "robustness"]

Array = np.ndarray[Any, Any]

# The standard deviation of noise in points, if it is unknown (MAP, section 5).
DEVIATION = 0.1
# The most noise that is added, in deviations (MAP, section 5: 0.5 points).
MOST = 5


@dataclass(frozen=True)
class NoiseSettings(Settings):
    """How large noise is, how often it is drawn, and from which seed."""

    trials: Positive = option(500, "Draws of noise, each followed by a new fit.", group="advanced")
    seed: Natural = option(0, "Seed of the noise.", group="advanced")
    deviation: Points | None = option(
        None,
        "Standard deviation of the noise in percentage points; by default that of as many random images as each "
        f"sample has, {DEVIATION} where it does not say how many.",
        group="advanced",
    )


@dataclass(frozen=True)
class Robustness:
    """The split without noise, and the shares of trials that find it, one layer less or more attention, or others.

    `deviation` is the mean standard deviation of the noise, in points; `mean_attention` and `std_attention` are in
    layers.
    """

    split: Split
    deviation: float
    trials: int
    same: float
    one_off: float
    further: float
    mean_attention: float
    std_attention: float


def robustness(
    samples: Sequence[Sample], depth: int, units: int, settings: NoiseSettings | None = None
) -> Robustness:
    """Add clip(N(0, σ), ±5σ) to every accuracy, choose degree and split again, and compare.

    Args:
        samples: The measured models.
        depth: L, the model's blocks.
        units: K, the number of units removed.
        settings: σ, trials and seed.

    Raises:
        DepthError: There are too few samples, or the budget is not in 0 to 2L.
    """
    settings = settings or NoiseSettings()
    folds, accuracies = CrossValidation(samples), accuracies_of(samples)

    def chosen(noise: Array) -> Split:
        noisy = [
            replace(sample, accuracy=float(value))
            for sample, value in zip(samples, accuracies + noise, strict=True)
        ]
        return best_split(fit(noisy, folds.best(accuracies + noise)), depth, units)

    split, deviations = chosen(np.zeros(len(samples))), deviations_of(samples, settings.deviation)
    draws = np.random.default_rng(settings.seed).normal(0, 1, (settings.trials, len(samples)))
    noises = deviations * draws.clip(-MOST, MOST)
    found = np.array([chosen(noise).attention for noise in noises])
    off = np.abs(found - split.attention)
    return Robustness(
        split=split,
        deviation=float(deviations.mean()),
        trials=settings.trials,
        same=float(np.mean(off == 0)),
        one_off=float(np.mean(off == 1)),
        further=float(np.mean(off > 1)),
        mean_attention=float(found.mean()),
        std_attention=float(found.std()),
    )


def deviations_of(samples: Sequence[Sample], given: float | None = None) -> Array:
    """Return the standard deviation of each sample's accuracy in points: the given one, or the binomial one.

    √(p (1 − p) / n) for n images, of which one more is counted as found and one more as not, so that an accuracy of
    100 % has errors too. Samples measured on the same images differ by less, and those of a short training by more.
    """
    if given is not None:
        return np.full(len(samples), given)
    images = np.array([each.images for each in samples])
    share = (accuracies_of(samples) / 100 * images + 1) / (images + 2)
    binomial = 100 * np.sqrt(share * (1 - share) / np.maximum(images, 1))
    return np.where(images > 0, binomial, DEVIATION)
