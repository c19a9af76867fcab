"""Compute retention rates from the average cosine similarity (ACS) of each layer and rho; solve for a rho.

STAR, section 5.2: p_l is linear in ACS_l. Rates are rounded to float32 once, here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from exporter.errors import ScheduleError
from exporter.ops.counts import keep_count

__all__ = [
    "ANCHORS",
    "BISECTIONS",
    "LEAST_RHO",
    "OutOfReachError",
    "check_rho",
    "counts",
    "ends_of_acs",
    "manual_rates",
    "rates_from_acs",
    "rho_for",
    "scaled_rates",
]

ANCHORS = ("minmax", "endpoints")
# A cosine is at most 1. Only proportions count, so that others may be given too; their differences must be numbers.
LARGEST_ACS = 1e6


def counts(
    rates: Sequence[float], num_patches: int, round_to: int = 1, num_prefix_tokens: int = 0
) -> tuple[int, ...]:
    """Return the number of patches left after each layer; a rate is a share of the current count.

    In a layer that prunes, the number of tokens (patches and prefix tokens) is rounded up to a multiple of
    `round_to`, but not above its current number.
    """
    left, kept = num_patches, []
    for rate in rates:
        tokens = num_prefix_tokens + keep_count(rate, left)
        left = min(left, tokens + -tokens % round_to - num_prefix_tokens)
        kept.append(left)
    return tuple(kept)


def rates_from_acs(acs: Sequence[float], rho: float, anchors: str = "minmax") -> tuple[float, ...]:
    """Return p_l = 1 − (1 − rho)·u_l, where u_l is the position of ACS_l between two anchors (STAR, Alg. 1 step 8).

    Args:
        acs: One value per layer, first to last.
        rho: The lowest rate, in (0, 1].
        anchors: "minmax" puts u = 0 and 1 at the smallest and largest ACS, which reproduces the published MACs.
            "endpoints" puts them at the first and last layer, as the paper's text says, and clips p to [rho, 1].

    Returns:
        One rate per layer, a float32 value in [rho, 1]. All are 1 if all ACS are equal.

    Raises:
        ScheduleError: rho or an ACS is out of range, or with "endpoints" the last ACS is not above the first.
    """
    check_rho(rho)
    values = _checked_acs(acs)
    if anchors not in ANCHORS:
        raise ScheduleError("anchors", repr(anchors), " or ".join(ANCHORS))
    low, high = (values.min(), values.max()) if anchors == "minmax" else (values[0], values[-1])
    if anchors == "endpoints" and not high > low:
        raise ScheduleError(
            "ACS",
            f"{low:.6g} at layer 1 and {high:.6g} at layer {len(values)}",
            "a larger value at the last layer for anchors=endpoints",
            "use anchors=minmax",
        )
    if high == low:
        return (1.0,) * len(values)
    rates = 1.0 - (1.0 - rho) * (values - low) / (high - low)
    return tuple(float(rate) for rate in np.clip(rates, rho, 1.0).astype(np.float32))


def ends_of_acs(acs: Sequence[float]) -> tuple[float, float]:
    """Return where the ACS of the first and of the last layer lie between the smallest (0) and the largest (1).

    STAR's text expects (0, 1), which makes rho the rate of the last layer; where all are equal, that is returned.
    """
    values = _checked_acs(acs)
    low, high = values.min(), values.max()
    if high == low:
        return 0.0, 1.0
    return float((values[0] - low) / (high - low)), float((values[-1] - low) / (high - low))


def scaled_rates(rates: Sequence[float], rho: float) -> tuple[float, ...]:
    """Return rates whose distances from 1 keep their proportions, and whose lowest is rho, as float32 values.

    Raises:
        ScheduleError: rho is out of range, or every rate is 1.
    """
    check_rho(rho)
    lowest = min(rates)
    if lowest >= 1.0:
        raise ScheduleError("rates", "1 in every layer", "at least one lower rate, to scale")
    return tuple(float(np.float32(1.0 - (1.0 - rho) * (1.0 - rate) / (1.0 - lowest))) for rate in rates)


def manual_rates(rates: Mapping[int, float], depth: int) -> tuple[float, ...]:
    """Return one rate per layer from rates of some 1-based layers (STAR, Table 2); the others keep all patches.

    Raises:
        ScheduleError: A layer or a rate is out of range.
    """
    for layer, rate in rates.items():
        if not 1 <= layer <= depth:
            raise ScheduleError("schedule", f"layer {layer}", f"a layer from 1 to {depth}")
        if not 0.0 < rate <= 1.0:
            raise ScheduleError(f"schedule, layer {layer}", f"rate {rate}", "a rate in (0, 1]")
    return tuple(float(np.float32(rates.get(layer, 1.0))) for layer in range(1, depth + 1))


def check_rho(rho: float) -> None:
    """Raise ScheduleError unless rho is in (0, 1]."""
    if not 0.0 < rho <= 1.0:
        raise ScheduleError("rho", str(rho), "a value in (0, 1]")


def _checked_acs(acs: Sequence[float]) -> np.ndarray:
    values = np.asarray(acs, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ScheduleError("ACS", f"an array of shape {list(values.shape)}", "one value per layer")
    for layer, value in enumerate(values, start=1):
        if not abs(value) <= LARGEST_ACS:
            raise ScheduleError(f"ACS, layer {layer}", str(value), "a number from -1e6 to 1e6")
    return values


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
            "save less, or take other counts, such as geometric",
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
