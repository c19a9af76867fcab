"""How many patches stay and which may join: arithmetic that the schedule, the operators and the plugin share.

As in ToMe, tokens alternate between the sets of a layer's pairs, the first token in the first set. Where a layer
keeps fewer patches than the second set has, only every third token is in it, or every fourth, and so on.
"""

import math

import numpy as np

# A product p·n that is an integer except for float32 rounding must not be rounded up past it.
ROUNDING_GUARD = np.float32(1e-4)


def keep_count(rate: float, patches: int) -> int:
    """Return k(p, n) = clamp(ceil(p·n − 1e-4), 1, n) in float32: the patches that a layer keeps of n."""
    product = np.float32(rate) * np.float32(patches) - ROUNDING_GUARD
    return min(max(math.ceil(product), 1), patches)


def joined_patches(patches: int, keep: int, num_prefix_tokens: int) -> range:
    """Return the patches of the second set, all of which stay: every s-th token, for the least s that leaves room.

    Args:
        patches: Patches that reach the layer.
        keep: Patches that it leaves, at least one.
        num_prefix_tokens: Tokens before the first patch; they are counted, but are in neither set.
    """
    sets = (
        range((s - 1 - num_prefix_tokens) % s, patches, s)
        for s in range(2, patches + 2)
    )
    return next(second for second in sets if len(second) <= keep)
