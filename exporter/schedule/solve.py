"""Solve for the rho of a target cost, given a cost function that falls as rho falls."""

from collections.abc import Callable

from exporter.errors import ScheduleError
from exporter.records import Schedule

__all__ = ["BISECTIONS", "LEAST_RHO", "rho_for"]

LEAST_RHO = 1e-3
# Counts are integers, so the cost is a step function; 2^-30 is far below the width of its steps.
BISECTIONS = 30


def rho_for(
    plan: Callable[[float], Schedule],
    cost: Callable[[Schedule], float],
    target: float,
    bisections: int = BISECTIONS,
) -> Schedule:
    """Return the schedule of the largest rho whose cost is at most the target, found by bisection.

    Args:
        plan: Makes the schedule of a rho.
        cost: Returns the cost of a schedule, in any unit; it must not fall as rho rises.
        target: The target cost, in the unit of `cost`.
        bisections: Number of bisections; use fewer if `cost` is expensive, as a mean over images is.

    Raises:
        ScheduleError: Even the smallest rho costs more; the message has its cost.
    """
    if cost(plan(1.0)) <= target:
        return plan(1.0)
    least = plan(LEAST_RHO)
    if cost(least) > target:
        raise ScheduleError(
            "target", f"{target:.6g}", f"at least {cost(least):.6g}, the cost of rho = {LEAST_RHO}"
        )
    low, high = LEAST_RHO, 1.0
    for _ in range(bisections):
        middle = (low + high) / 2
        if cost(plan(middle)) <= target:
            low = middle
        else:
            high = middle
    return plan(low)
