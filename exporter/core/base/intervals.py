"""Confidence intervals of a share of images, of a mean, and of what one of two models loses on the same images.

Also how many images a narrower interval needs. Only the images that exactly one of the two models classifies
correctly tell them apart: `lost`, by the first alone, and `gained`, by the second alone. The loss is
(lost − gained) / images, a share from −1 to 1.
"""

from bisect import bisect_left
from collections.abc import Callable
from math import sqrt
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

# Lower and upper limit, in the unit of what is estimated.
Interval: TypeAlias = tuple[float, float]

# Larger than any set of images: a search for a number of images ends here.
MOST_IMAGES = 2**40


def wilson(hits: float, images: float, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a share (Wilson 1927, J. Am. Stat. Assoc. 22).

    It stays within [0, 1] and is not empty at 0 or all hits, unlike the normal approximation.

    Args:
        hits: Images that count; a fraction is allowed, to plan with a rate.
        images: All images, at least one.
        confidence: Share of repetitions whose interval contains the true share, between 0 and 1.
    """
    z = normal_quantile((1 + confidence) / 2)
    share = hits / images
    weight = z * z / images
    center = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * sqrt(share * (1 - share) / images + weight / (4 * images))
    # At no hit and at all hits, one limit is exact but for rounding.
    low = max(0.0, center - half)
    high = min(1.0, center + half)
    return (0.0 if hits == 0 else low), (1.0 if hits == images else high)


def half_width(interval: Interval) -> float:
    """Return half of the distance between the limits."""
    low, high = interval
    return (high - low) / 2


def least_images(enough: Callable[[int], bool]) -> int:
    """Return the least number of images that is `enough`, as every larger one is; 2⁴⁰ where no smaller one is."""
    high = 1
    while not enough(high) and high < MOST_IMAGES:
        high *= 2
    return bisect_left(range(high), True, lo=max(1, high // 2), key=enough)


def normal_quantile(share: float) -> float:
    """Return the standard normal value below which this share lies."""
    return NormalDist().inv_cdf(share)


def mean_interval(values: np.ndarray[Any, Any], confidence: float = 0.95) -> Interval:
    """Return the interval of the mean of values [n], if means are normal; a single one has no width."""
    z = normal_quantile((1 + confidence) / 2)
    mean = float(values.mean())
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    half = z * spread / sqrt(len(values))
    return mean - half, mean + half


# Halvings of [−1, 1], which leave the spacing of floats.
STEPS = 54


def loss_interval(lost: float, gained: float, images: float) -> Interval:
    """Return Tango's score interval of the loss, of 95 % (Tango 1998, Statistics in Medicine 17).

    It contains the losses that a score test does not reject, and 0 where the asymptotic form of McNemar's test does
    not reject. It needs no minimum of differing images.

    Args:
        lost: Images that the first model alone classifies correctly; a fraction is allowed, to plan with a rate.
        gained: Images that the second model alone classifies correctly.
        images: All images, at least one.
    """
    z = normal_quantile(0.975)
    return _where(z, lost, gained, images), _where(-z, lost, gained, images)


def _where(z: float, lost: float, gained: float, images: float) -> float:
    """Return the loss at which the score statistic, which falls in the loss, is `z`."""
    low, high = -1.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if _score(middle, lost, gained, images) > z
            else (low, middle)
        )
    return (low + high) / 2


def _score(loss: float, lost: float, gained: float, images: float) -> float:
    """Return the deviation of the measured from this loss, in its standard deviations (Tango 1998, eq. 3 and 4).

    The deviation is that of the likeliest chance `g` of a gained image under this loss, the root of
    2n·g² + b·g − gained·loss·(1 − loss) = 0.
    """
    b = (2 * images - lost + gained) * loss - lost - gained
    root = sqrt(max(0.0, b * b + 8 * images * gained * loss * (1 - loss)))
    chance = (root - b) / (4 * images)
    variance = images * (2 * chance + loss * (1 - loss))
    deviation = lost - gained - images * loss
    return deviation / sqrt(variance) if variance > 0 else deviation
