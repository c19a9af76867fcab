"""Solve for the rho of a target cost."""

import math
from collections.abc import Callable
from typing import TypeVar

from exporter.errors import ScheduleError

__all__ = ["BISECTIONS", "LEAST_RHO", "OutOfReachError", "rho_for"]

PlanT = TypeVar("PlanT")

LEAST_RHO = 1e-3
# The first guesses, downwards. a-STAR's rho for STAR's cost is near 1, so its search soon ends.
STEPS = 8
# Counts are integers, so the cost is a step function; 2^-30 is far below the width of its steps.
BISECTIONS = 30


class OutOfReachError(ScheduleError):
    """A target cost below that of every rho; `least` is the lowest of them."""

    def __init__(self, target: float, least: float) -> None:
        self.least = least
        super().__init__(
            "target",
            f"{target:.6g}",
            f"at least {least:.6g}, the lowest cost of all rho that were tried",
            "save less, or take another method: tome saves the least",
        )


def rho_for(
    plan: Callable[[float], PlanT],
    cost: Callable[[PlanT], float],
    target: float,
    bisections: int = BISECTIONS,
) -> PlanT:
    """Return the plan of a rho whose cost is at most the target, and exceeds it just above.

    rho falls from 1 in `STEPS` steps until the target is met; bisection then narrows the last step. Where the cost
    rises with rho, as STAR's does, this is the largest rho that meets the target. a-STAR's cost need not: patches
    that one layer keeps change the scores in the next. The result still meets the target, but between two steps
    above it a larger rho may, too.

    Args:
        plan: Makes the schedule of a rho, or what has one.
        cost: Returns its cost, in any unit.
        target: The target cost, in the unit of `cost`.
        bisections: Halvings of the range of rho, the first steps included; use fewer if `cost` is expensive, as a
            mean over images is.

    Raises:
        OutOfReachError: No step meets the target.
    """
    least, high = float("inf"), 1.0
    for step in range(STEPS + 1):
        low = max(LEAST_RHO, 1.0 - step / STEPS)
        found = plan(low)
        least = min(least, cost(found))
        if least <= target:
            break
        high = low
    else:
        raise OutOfReachError(target, least)
    for _ in range(bisections - int(math.log2(STEPS)) if high > low else 0):
        middle = (low + high) / 2
        schedule = plan(middle)
        if cost(schedule) <= target:
            low, found = middle, schedule
        else:
            high = middle
    return found
