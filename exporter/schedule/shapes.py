"""Shapes: how the patches that are left fall from layer to layer; each is solved for a cost.

No shape needs images or weights. A shape is a curve of real numbers, which counts follow, rounded up: so any share
can be reached, up to one patch left from the first layer on. Rates that follow from ACS are in
`exporter.schedule.rates`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from exporter.errors import ScheduleError
from exporter.schedule.rates import OutOfReachError, check_rho

__all__ = ["SHAPES", "Curve", "counts_for_cost", "counts_of_rho", "rates_of_counts", "shaped_counts"]

# Halvings of the steepness. Counts are integers: 2^-40 is far below the width of their steps.
HALVINGS = 40
# A count that is an integer but for rounding must not be rounded up past it.
GUARD = 1e-4

# The share of the patches left after the i-th layer that may prune (from 1), at a steepness from 0 (all) to 1;
# the third number is one more than there are such layers. It never rises with the first two, and may be below 0.
Curve = Callable[[float, int, int], float]


def _few(steepness: float, layer: int, end: int) -> float:
    """Prune behind a quarter, half and three quarters of the layers, as DynamicViT and EViT do (12: 4, 7, 10)."""
    return float((1.0 - steepness) ** sum(layer > end * quarter // 4 for quarter in (1, 2, 3)))


SHAPES: Mapping[str, Curve] = {
    # ToMe, section 3: as many patches fewer in every layer.
    "constant": lambda steepness, layer, _: 1.0 - steepness * layer,
    # ToMe's decreasing schedule: how many patches fewer falls linearly, to none behind the last layer.
    "linear": lambda steepness, layer, end: 1.0 - steepness * layer * (2 * end - layer - 1) / (2 * end - 2),
    # Every layer keeps the same share of what reaches it.
    "geometric": lambda steepness, layer, _: float((1.0 - steepness) ** layer),
    "few": _few,
}


def shaped_counts(curve: Curve, steepness: float, patches: int, prunes: Sequence[bool]) -> tuple[int, ...]:
    """Return the patches left after each layer; they never rise, and at least one stays.

    Args:
        curve: One of `SHAPES`, or another.
        steepness: From 0, all patches stay, to 1, one stays from the first layer of the shape on.
        patches: Patches before the first layer.
        prunes: Whether each layer may prune.
    """
    return tuple(max(1, math.ceil(left - GUARD)) for left in _left(curve, steepness, patches, prunes))


def counts_of_rho(curve: Curve, rho: float, patches: int, prunes: Sequence[bool]) -> tuple[int, ...]:
    """Return the counts whose lowest rate is rho, but for rounding.

    With "constant", ToMe's number of patches merged in a layer is (1 − rho) · patches / ((1 − rho) · layers + rho).

    Raises:
        ScheduleError: rho is out of range.
    """
    check_rho(rho)

    def keeps(steepness: float) -> bool:
        left = [float(patches), *_left(curve, steepness, patches, prunes)]
        # As products: where the curve has reached 0, there is no rate.
        return all(after > 0.0 and after >= rho * before for before, after in pairwise(left))

    return shaped_counts(curve, _steepest(keeps, 60), patches, prunes)


def counts_for_cost(
    curve: Curve,
    patches: int,
    prunes: Sequence[bool],
    cost: Callable[[tuple[int, ...]], float],
    target: float,
) -> tuple[int, ...]:
    """Return the counts of a shape whose cost is at most the target, and above it with a patch more.

    Between the two last curves, as many layers as fit have the count of the flatter one, from the first on.

    Args:
        curve: One of `SHAPES`, or another.
        patches: Patches before the first layer.
        prunes: Whether each layer may prune.
        cost: The cost of counts, in any unit.
        target: The target cost, in the same unit.

    Raises:
        OutOfReachError: The steepest of this shape costs more.
    """
    least = cost(shaped_counts(curve, 1.0, patches, prunes))
    if least > target:
        raise OutOfReachError(target, least)

    def too_dear(steepness: float) -> bool:
        return cost(shaped_counts(curve, steepness, patches, prunes)) > target

    flat = _steepest(too_dear, HALVINGS)
    steep = flat + 0.5**HALVINGS if too_dear(flat) else flat
    above, found = (shaped_counts(curve, each, patches, prunes) for each in (flat, steep))
    for layer in range(len(prunes)):
        more = above[: layer + 1] + found[layer + 1 :]
        if cost(more) > target:
            break
        found = more
    return found


def rates_of_counts(counts: Sequence[int], patches: int) -> tuple[float, ...]:
    """Return the float32 rates from which `counts` makes these counts; ScheduleError names a count that rises."""
    rates, left = [], patches
    for layer, after in enumerate(counts, start=1):
        if not 1 <= after <= left:
            raise ScheduleError(f"counts, layer {layer}", f"{after} patches", f"1 to {left}")
        # Rounded down: the count of a rate that is rounded up could be one more.
        rate = np.float32(after / left)
        rates.append(float(rate if rate <= after / left else np.nextafter(rate, np.float32(0.0))))
        left = after
    return tuple(rates)


def _left(curve: Curve, steepness: float, patches: int, prunes: Sequence[bool]) -> list[float]:
    done, end = 0, sum(prunes) + 1
    left = []
    for each in prunes:
        done += each
        left.append(patches * curve(steepness, done, end) if done else float(patches))
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
