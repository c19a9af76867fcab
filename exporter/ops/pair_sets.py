"""The two sets of ToMe's pairs: tokens alternate between them, the first token in the first set.

Patches of the first set may join patches of the second; prefix tokens neither join nor are joined.
"""

__all__ = ["first_joined", "num_joined"]


def first_joined(num_prefix_tokens: int) -> int:
    """Return the first patch of the second set, 0 or 1; every second patch after it belongs to the set."""
    return (num_prefix_tokens + 1) % 2


def num_joined(patches: int, num_prefix_tokens: int) -> int:
    """Return the number of patches in the second set: the least that a layer can keep."""
    return len(range(first_joined(num_prefix_tokens), patches, 2))
