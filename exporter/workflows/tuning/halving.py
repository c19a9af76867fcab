"""Successive halving: which candidates are worth more images, by paired tests and what they cost.

A public optimiser would not serve here: the values of all axes can be listed, the cost of a candidate is estimated
before it is measured, and what matters is the paired comparison on the same images, which samplers and pruners of
hyperparameters (Optuna's, for one) do not make: they see one number a trial.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf, sqrt
from typing import Any, TypeVar

import numpy as np

from exporter.evaluation.intervals import loss_interval

__all__ = ["FEWEST", "evenly", "front", "loss_of", "margin_of", "ranked", "survivors"]

KeyT = TypeVar("KeyT")
Array = np.ndarray[Any, Any]

# Of the limits that rule a candidate out: one-sided 95 %.
CONFIDENCE = 0.9
# Standard errors that are added to a loss.
ERRORS = 2.0
# No stage leaves fewer.
FEWEST = 6


def loss_of(dense: Array, other: Array) -> tuple[int, int]:
    """Return how many images only the first has right, and only the second; bool [images]."""
    return int((dense & ~other).sum()), int((other & ~dense).sum())


def margin_of(dense: Array, other: Array) -> float:
    """Return the loss plus two standard errors, as a share: what a candidate qualifies by.

    Without them, the fastest of many would be one whose loss was measured too low. Images that were not read lose
    more than this once in about ten times: their loss differs by 1.4 standard errors from the measured one, and the
    rest is for choosing among many. Half an image is added to each way in which two models can differ or agree
    (Agresti and Min 2005, Statistics in Medicine 24): few images without a difference show little.
    """
    lost, gained = loss_of(dense, other)
    images = len(dense) + 2
    mean = (lost - gained) / images
    variance = (lost + gained + 1) / images - mean**2
    return mean + ERRORS * sqrt(variance / images)


def survivors(
    hits: Mapping[KeyT, Array], dense: Array, cost: Mapping[KeyT, float], max_drop: float | None
) -> list[KeyT]:
    """Return the candidates that deserve more images: the most promising half, and the front.

    Out are those that lose more than the limit, or less accurate than another of no more cost, each with
    95 % confidence. Of the others, those within the limit come first, the cheapest ones; then those that
    exceed it least. The front shows what speed costs, also far below the limit.

    Args:
        hits: Which images each candidate has right, bool [images].
        dense: The same of the unpruned model.
        cost: Of each candidate, a time.
        max_drop: The largest loss, as a share; None: as little as possible.
    """
    left = [
        key
        for key, own in hits.items()
        if not _exceeds(dense, own, max_drop) and not _beaten(key, hits, cost)
    ]

    def loss(key: KeyT) -> float:
        lost, gained = loss_of(dense, hits[key])
        return (lost - gained) / len(dense)

    order, keep = _by_excess(left, loss, cost, max_drop), max(FEWEST, ceil(len(hits) / 2))
    best = front(left, loss, cost)
    return [key for place, key in enumerate(order) if place < keep or key in best]


def ranked(
    hits: Mapping[KeyT, Array], dense: Array, cost: Mapping[KeyT, float], max_drop: float | None
) -> list[KeyT]:
    """Return the candidates in the order in which they deserve to be timed; the arguments are those of `survivors`.

    First those that qualify, the cheapest ones; then those that exceed the limit least.
    """
    return _by_excess(hits, lambda key: margin_of(dense, hits[key]), cost, max_drop)


def front(keys: Iterable[KeyT], loss: Callable[[KeyT], float], cost: Mapping[KeyT, float]) -> list[KeyT]:
    """Return the keys that no other one beats in both cost and loss, the cheapest first."""
    least, kept = inf, []
    for key in sorted(keys, key=lambda each: (cost[each], loss(each))):
        if loss(key) < least:
            least = loss(key)
            kept.append(key)
    return kept


def evenly(
    keys: Sequence[KeyT], loss: Callable[[KeyT], float], cost: Mapping[KeyT, float], count: int
) -> list[KeyT]:
    """Return at most so many keys of a front, evenly along it.

    The way from a key to the next one is what they differ in cost and in loss, each as a share of its whole range.
    """
    if len(keys) <= count:
        return list(keys)
    at = np.array([(cost[key], loss(key)) for key in keys])
    steps = np.abs(np.diff(at, axis=0)) / np.maximum(np.ptp(at, axis=0), 1e-12)
    place = np.concatenate([[0.0], steps.sum(axis=1).cumsum()])
    nearest = {int(np.abs(place - wanted).argmin()) for wanted in np.linspace(0.0, place[-1], count)}
    return [keys[at] for at in sorted(nearest)]


def _by_excess(
    keys: Iterable[KeyT], loss: Callable[[KeyT], float], cost: Mapping[KeyT, float], max_drop: float | None
) -> list[KeyT]:
    """Sort by how far a loss exceeds the limit, then by cost."""
    limit = 0.0 if max_drop is None else max_drop
    return sorted(keys, key=lambda key: (max(0.0, loss(key) - limit), cost[key]))


def _exceeds(dense: Array, own: Array, max_drop: float | None) -> bool:
    """Whether the candidate loses more than the limit."""
    if max_drop is None:
        return False
    return loss_interval(*loss_of(dense, own), len(dense), CONFIDENCE)[0] > max_drop


def _beaten(key: KeyT, hits: Mapping[KeyT, Array], cost: Mapping[KeyT, float]) -> bool:
    """Whether the most accurate candidate of no more cost is better than this one."""
    rivals = [other for other in hits if other != key and cost[other] <= cost[key]]
    if not rivals:
        return False
    best = max(rivals, key=lambda other: int(hits[other].sum()))
    return loss_interval(*loss_of(hits[best], hits[key]), len(hits[key]), CONFIDENCE)[0] > 0
