"""Retention rates of layers, from the average cosine similarity (ACS) and rho, by hand, or along a curve.

STAR, section 5.2: p_l is linear in ACS_l. Rates are rounded to float32 once, here. A curve says how the patches
that are left fall from layer to layer, and needs no images or weights: counts follow it, rounded up, so any share
can be reached, up to one patch left from the first layer on. A rho, or the steepness of a curve, is solved for a
cost.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from exporter.core.base.errors import ScheduleError
from exporter.core.base.vocabulary import Anchors
from exporter.core.schedule.counts import keep_count

# A cosine is at most 1. Only proportions count, so that others may be given too; their differences must be numbers.
LARGEST_ACS = 1e6


def counts(
    rates: Sequence[float],
    num_patches: int,
    round_to: int = 1,
    num_prefix_tokens: int = 0,
) -> tuple[int, ...]:
    """Return the number of patches left after each layer; a rate is a share of the current count.

    In a layer that prunes, the number of tokens (patches and prefix tokens) is rounded up to a multiple of
    `round_to`, but not above its current number.
    """
    left, by_layer = num_patches, []
    for rate in rates:
        tokens = num_prefix_tokens + keep_count(rate, left)
        left = min(left, tokens + -tokens % round_to - num_prefix_tokens)
        by_layer.append(left)
    return tuple(by_layer)


def rates_from_acs(
    acs: Sequence[float], rho: float, anchors: Anchors = Anchors.MINMAX
) -> tuple[float, ...]:
    """Return p_l = 1 − (1 − rho)·u_l, where u_l is the position of ACS_l between two anchors (STAR, Alg. 1 step 8).

    Args:
        acs: One value per layer, first to last.
        rho: The lowest rate, in (0, 1].
        anchors: Minmax puts u = 0 and 1 at the smallest and largest ACS, which reproduces the published MACs.
            Endpoints puts them at the first and last layer, as the paper's text says, and clips p to [rho, 1].

    Returns:
        One rate per layer, a float32 value in [rho, 1]. All are 1 if all ACS are equal.

    Raises:
        ScheduleError: An ACS is out of range, or with endpoints the last ACS is not above the first.
    """
    for layer, value in enumerate(acs, start=1):
        if not abs(value) <= LARGEST_ACS:
            raise ScheduleError(
                f"ACS, layer {layer}", str(value), "a number from -1e6 to 1e6"
            )
    values = np.asarray(acs, dtype=np.float64)
    low, high = values.min(), values.max()
    if anchors == Anchors.ENDPOINTS:
        low, high = values[0], values[-1]
        if not high > low:
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
    low, high = min(acs), max(acs)
    if high == low:
        return 0.0, 1.0
    return (acs[0] - low) / (high - low), (acs[-1] - low) / (high - low)


def scaled_rates(rates: Sequence[float], rho: float) -> tuple[float, ...]:
    """Return rates whose distances from 1 keep their proportions, and whose lowest is rho, as float32 values.

    Raises:
        ScheduleError: Every rate is 1.
    """
    lowest = min(rates)
    if lowest >= 1.0:
        raise ScheduleError(
            "rates", "1 in every layer", "at least one lower rate, to scale"
        )
    return tuple(
        float(np.float32(1.0 - (1.0 - rho) * (1.0 - rate) / (1.0 - lowest)))
        for rate in rates
    )


def manual_rates(rates: Mapping[int, float], depth: int) -> tuple[float, ...]:
    """Return one rate per layer from 0 on, given those of some (STAR, Table 2); the others keep all patches.

    Raises:
        ScheduleError: A layer is out of range.
    """
    for layer in rates:
        if layer > depth:
            raise ScheduleError(
                "schedule", f"layer {layer}", f"a layer from 0 to {depth}"
            )
    return tuple(float(np.float32(rates.get(layer, 1.0))) for layer in range(depth + 1))


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
            "save less, or take the method matching",
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
        cheap = plan(low)
        least = min(least, cost(cheap))
        if least <= target:
            break
        high = low
    else:
        raise OutOfReachError(target, least)
    if low == 1.0:
        return cheap
    for _ in range(bisections - int(math.log2(STEPS))):
        middle = (low + high) / 2
        schedule = plan(middle)
        if cost(schedule) <= target:
            low, cheap = middle, schedule
        else:
            high = middle
    return cheap


# Halvings of the steepness. Counts are integers: 2^-40 is far below the width of their steps.
HALVINGS = 40
# A count that is an integer but for rounding must not be rounded up past it.
GUARD = 1e-4

# The share of the patches left after the i-th layer that prunes (from 1), at a steepness from 0 (all) to 1. It
# never rises with either, and may be below 0.
Curve = Callable[[float, int], float]


def same_share(steepness: float, layer: int) -> float:
    """Each layer that prunes keeps the same share of what reaches it."""
    return float((1.0 - steepness) ** layer)


def same_number(steepness: float, layer: int) -> float:
    """As many patches fewer in every layer that prunes (ToMe, section 3)."""
    return 1.0 - steepness * layer


def shaped_counts(
    curve: Curve, steepness: float, patches: int, prunes: Sequence[bool]
) -> tuple[int, ...]:
    """Return the patches left after each layer; they never rise, and at least one stays.

    Args:
        curve: How the patches that are left fall from layer to layer.
        steepness: From 0, all patches stay, to 1, one stays from the first layer that prunes on.
        patches: Patches before the first layer.
        prunes: Whether each layer may prune.
    """
    return tuple(
        max(1, math.ceil(left - GUARD))
        for left in _left(curve, steepness, patches, prunes)
    )


def counts_of_rho(
    curve: Curve, rho: float, patches: int, prunes: Sequence[bool]
) -> tuple[int, ...]:
    """Return the counts whose lowest rate is rho, but for rounding.

    By `same_number`, a layer merges (1 − rho) · patches / ((1 − rho) · layers + rho), where so many layers prune.
    """

    def keeps(steepness: float) -> bool:
        left = [float(patches), *_left(curve, steepness, patches, prunes)]
        # As products: where the curve has reached 0, there is no rate.
        return all(
            after > 0.0 and after >= rho * before for before, after in pairwise(left)
        )

    return shaped_counts(curve, _steepest(keeps, 60), patches, prunes)


def counts_for_cost(
    curve: Curve,
    patches: int,
    prunes: Sequence[bool],
    cost: Callable[[tuple[int, ...]], float],
    target: float,
) -> tuple[int, ...]:
    """Return the counts of a curve whose cost is at most the target, and above it with a patch more anywhere.

    They are those of the flattest curve that fits, and what that leaves is spent patch by patch.

    Args:
        curve: How the patches that are left fall from layer to layer.
        patches: Patches before the first layer.
        prunes: Whether each layer may prune.
        cost: The cost of counts, in any unit.
        target: The target cost, in the same unit.

    Raises:
        OutOfReachError: The steepest of this curve costs more.
    """
    least = cost(shaped_counts(curve, 1.0, patches, prunes))
    if least > target:
        raise OutOfReachError(target, least)

    def too_dear(steepness: float) -> bool:
        return cost(shaped_counts(curve, steepness, patches, prunes)) > target

    flat = _steepest(too_dear, HALVINGS)
    steep = flat + 0.5**HALVINGS if too_dear(flat) else flat
    keep = shaped_counts(curve, steep, patches, prunes)

    def fits(keep: tuple[int, ...]) -> bool:
        return cost(keep) <= target

    while (more := _raised(keep, patches, prunes, fits)) != keep:
        keep = more
    return keep


def _raised(
    keep: tuple[int, ...],
    patches: int,
    prunes: Sequence[bool],
    fits: Callable[[tuple[int, ...]], bool],
) -> tuple[int, ...]:
    """Return counts with a patch more behind each layer that prunes, from the last on, where that fits."""
    starts = [layer for layer, may in enumerate(prunes) if may]
    for start, end in reversed([*pairwise((*starts, len(prunes)))]):
        most = keep[start - 1] if start else patches
        raised = (keep[start] + 1,) * (end - start)
        more = (*keep[:start], *raised, *keep[end:])
        if keep[start] < most and fits(more):
            keep = more
    return keep


def rates_of_counts(left_after: Sequence[int], patches: int) -> tuple[float, ...]:
    """Return the float32 rates from which `counts` makes these counts, which never rise."""
    rates, left = [], patches
    for after in left_after:
        rate = np.float32(after / left)
        # The count of a rate that is rounded up could be one more.
        if rate > after / left:
            rate = np.nextafter(rate, np.float32(0.0))
        rates.append(float(rate))
        left = after
    return tuple(rates)


def _left(
    curve: Curve, steepness: float, patches: int, prunes: Sequence[bool]
) -> list[float]:
    pruned, left = 0, []
    for layer_prunes in prunes:
        pruned += layer_prunes
        left.append(patches * curve(steepness, pruned) if pruned else float(patches))
    return left


def _steepest(holds: Callable[[float], bool], halvings: int) -> float:
    """Return the largest steepness at which this holds, 0 if at none; it holds up to one limit."""
    if holds(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
