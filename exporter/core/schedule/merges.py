"""The layers in which matching merges: few of them, evenly spread over the first half of the network.

A merge takes steps of its own: of equal multiply-adds, the model with fewer is faster. Two lose more than seven,
three or four do not (docs/results.md).
"""

import math
from fractions import Fraction

# How many layers merge where at most this share of the multiply-adds is saved.
MOST_SAVED = {3: 0.5, 4: 0.75, 5: 1.0}


def merges_for(share: float) -> int:
    """Return how many layers merge where this share of the multiply-adds is saved."""
    return next(merges for merges, most in MOST_SAVED.items() if share <= most)


def merging_layers(merges: int, depth: int) -> tuple[int, ...]:
    """Return the layers that merge, 0 before the first: evenly spread, and rounded to the nearest, a half up.

    Up to three stand from a sixth of the depth to its half, a single one in the middle; four from 0 to the half,
    and more from 0 to a third. Of 12 layers these are 4; 2, 6; 2, 4, 6; 0, 2, 4, 6; 0, 1, 2, 3, 4. Places that
    round to the same layer are one.
    """
    first = Fraction(1, 6) if merges <= 3 else Fraction(0)
    last = Fraction(1, 2) if merges <= 4 else Fraction(1, 3)
    places = [(first + last) / 2]
    if merges > 1:
        step = (last - first) / (merges - 1)
        places = [first + step * place for place in range(merges)]
    layers = {math.floor(depth * place + Fraction(1, 2)) for place in places}
    return tuple(sorted(layers))
