"""rho for a target: the cost is a function that is given, and falls as rho falls."""

from collections.abc import Callable

from exporter.errors import ScheduleError
from exporter.records import Schedule

__all__ = ["BISECTIONS", "LEAST_RHO", "rho_for"]

LEAST_RHO = 1e-3
# Counts are whole numbers, so the cost is a staircase; 2^-30 is far below the width of any of its steps.
BISECTIONS = 30


def rho_for(
    plan: Callable[[float], Schedule],
    cost: Callable[[Schedule], float],
    target: float,
    bisections: int = BISECTIONS,
) -> Schedule:
    """The schedule of the largest rho, found by bisection, whose cost is at most the target.

    Args:
        plan: Makes the schedule of a rho.
        cost: What a schedule costs, in any unit; it must not fall as rho rises.
        target: In the unit of `cost`.
        bisections: Fewer suffice where the cost is a mean over images and dear.

    Raises:
        ScheduleError: Even the least rho costs more; what it costs is named.
    """
    if cost(plan(1.0)) <= target:
        return plan(1.0)
    least = plan(LEAST_RHO)
    if cost(least) > target:
        raise ScheduleError(
            "target", f"{target:.6g}", f"at least {cost(least):.6g}, what rho = {LEAST_RHO} costs"
        )
    low, high = LEAST_RHO, 1.0
    for _ in range(bisections):
        middle = (low + high) / 2
        if cost(plan(middle)) <= target:
            low = middle
        else:
            high = middle
    return plan(low)
