"""The two sets of a layer's pairs: patches of the first set may join patches of the second.

As in ToMe, tokens alternate between the sets, the first token in the first set. Where a layer keeps fewer patches
than that second set has, only every third token is in it, or every fourth, and so on.
"""

__all__ = ["joined_patches"]


def joined_patches(patches: int, keep: int, num_prefix_tokens: int) -> range:
    """Return the patches of the second set, all of which stay: every s-th token, for the least s that leaves room.

    Args:
        patches: Patches that reach the layer.
        keep: Patches that it leaves, at least one.
        num_prefix_tokens: Tokens before the first patch; they are counted, but are in neither set.
    """
    sets = (range((s - 1 - num_prefix_tokens) % s, patches, s) for s in range(2, patches + 2))
    return next(second for second in sets if len(second) <= keep)
