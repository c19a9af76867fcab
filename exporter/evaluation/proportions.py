"""Confidence intervals of a share of images, and how many images a narrower one needs."""

from collections.abc import Callable
from math import sqrt
from statistics import NormalDist
from typing import TypeAlias

__all__ = ["Interval", "half_width", "images_for", "normal_quantile", "wilson"]

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
    share, weight = hits / images, z * z / images
    center = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * sqrt(share * (1 - share) / images + weight / (4 * images))
    # At no hit and at all hits, one limit is exact but for rounding.
    low, high = max(0.0, center - half), min(1.0, center + half)
    return (0.0 if hits == 0 else low), (1.0 if hits == images else high)


def half_width(interval: Interval) -> float:
    """Return half of the distance between the limits."""
    low, high = interval
    return (high - low) / 2


def images_for(interval: Callable[[int], Interval], within: float) -> int:
    """Return the least number of images whose interval is no wider than ± `within`.

    Args:
        interval: The interval for a number of images at the measured rates; it narrows as the number grows.
        within: The half width, in the interval's unit, above 0.
    """
    low, high = 0, 1
    while half_width(interval(high)) > within and high < MOST_IMAGES:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if half_width(interval(middle)) > within else (low, middle)
    return high


def normal_quantile(share: float) -> float:
    """Return the standard normal value below which this share lies."""
    return NormalDist().inv_cdf(share)
