"""How much of the accuracy that pruning lost was won back, and whether images show that it is enough."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.evaluation.proportions import normal_quantile
from exporter.vocabulary import Status

__all__ = ["GOAL", "Recovery", "recovery_of"]

Array = np.ndarray[Any, Any]

# Half of the loss.
GOAL = 0.5
CONFIDENCE = 0.95  # of a one-sided limit


@dataclass(frozen=True)
class Recovery:
    """The share of the lost top-1 that was won back, None where none was lost; the goal, and its status.

    `surplus_points` is how far top-1 is above what the goal demands, in percentage points, and
    `surplus_interval_points` its one-sided limits of 95 % confidence either way: met if the lower one is at least
    0, missed if the upper one is below.
    """

    share: float | None
    goal: float
    status: Status
    surplus_points: float
    surplus_interval_points: tuple[float, float]


def recovery_of(dense: Array, before: Array, after: Array, goal: float = GOAL) -> Recovery:
    """Judge from the images that each of three models has right, bool [images], the same for all.

    The surplus is the mean over images of (after − before) − goal · (dense − before), whose limits are those of a
    mean with a normal distribution.

    Args:
        dense: The unpruned model, before training.
        before: The pruned model, before training.
        after: The pruned model, after it.
        goal: The share of the loss to win back.
    """
    lost, won = _mean(dense) - _mean(before), _mean(after) - _mean(before)
    each = (after.astype(float) - before) - goal * (dense.astype(float) - before)
    surplus, half = _mean(each), normal_quantile(CONFIDENCE) * float(each.std()) / len(each) ** 0.5
    low, high = 100 * (surplus - half), 100 * (surplus + half)
    status = Status.MET if low >= 0 else Status.MISSED if high < 0 else Status.NOT_SHOWN
    return Recovery(won / lost if lost > 0 else None, goal, status, 100 * surplus, (low, high))


def _mean(values: Array) -> float:
    return float(values.mean())
