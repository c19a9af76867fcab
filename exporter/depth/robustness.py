"""How far the chosen split depends on noise in the measured accuracies: a Monte-Carlo report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from exporter.depth.predictor import CrossValidation, Sample, accuracies_of, fit
from exporter.depth.search import Split, best_split
from exporter.settings import Natural, Positive, Settings, option

__all__ = ["NoiseSettings", "Robustness", "robustness"]

# Noise in percentage points of accuracy: its standard deviation, and the most that is added (MAP, section 5).
DEVIATION, MOST = 0.1, 0.5


@dataclass(frozen=True)
class NoiseSettings(Settings):
    """How often noise is drawn, and from which seed."""

    trials: Positive = option(500, "Draws of noise, each followed by a new fit.")
    seed: Natural = option(0, "Seed of the noise.")


@dataclass(frozen=True)
class Robustness:
    """The split without noise, and the shares of trials that find it, one layer less or more attention, or others.

    `mean_attention` and `std_attention` are in layers.
    """

    split: Split
    trials: int
    same: float
    one_off: float
    further: float
    mean_attention: float
    std_attention: float


def robustness(
    samples: Sequence[Sample], depth: int, units: int, settings: NoiseSettings | None = None
) -> Robustness:
    """Add clip(N(0, 0.1), ±0.5) to every accuracy, choose degree and split again, and compare.

    Args:
        samples: The measured models.
        depth: L, the model's blocks.
        units: K, the number of units removed.
        settings: Trials and seed.

    Raises:
        DepthError: There are too few samples, or the budget is not in 0 to 2L.
    """
    settings = settings or NoiseSettings()
    folds, accuracies = CrossValidation(samples), accuracies_of(samples)

    def chosen(noise: np.ndarray) -> Split:
        noisy = [
            replace(sample, accuracy=float(value))
            for sample, value in zip(samples, accuracies + noise, strict=True)
        ]
        return best_split(fit(noisy, folds.best(accuracies + noise)), depth, units)

    split = chosen(np.zeros(len(samples)))
    draws = np.random.default_rng(settings.seed).normal(0, DEVIATION, (settings.trials, len(samples)))
    found = np.array([chosen(noise).attention for noise in draws.clip(-MOST, MOST)])
    off = np.abs(found - split.attention)
    return Robustness(
        split=split,
        trials=settings.trials,
        same=float(np.mean(off == 0)),
        one_off=float(np.mean(off == 1)),
        further=float(np.mean(off > 1)),
        mean_attention=float(found.mean()),
        std_attention=float(found.std()),
    )
