"""The number of patches that a retention rate keeps: one formula for the schedule, the operators and the plugin."""

import math

import numpy as np

__all__ = ["ROUNDING_GUARD", "keep_count"]

# A product p·n that is an integer except for float32 rounding must not be rounded up past it.
ROUNDING_GUARD = np.float32(1e-4)


def keep_count(rate: float, patches: int) -> int:
    """Return k(p, n) = clamp(ceil(p·n − 1e-4), 1, n) in float32: the patches that a layer keeps of n."""
    product = np.float32(rate) * np.float32(patches) - ROUNDING_GUARD
    return min(max(math.ceil(product), 1), patches)
