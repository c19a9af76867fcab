"""ToMe's pairs in NumPy, token by token: the reference for every implementation."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.ops.factors import WIDEST_GAP
from exporter.ops.merging import PAIR_SCORE

__all__ = ["Pairs", "reference_pairs"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Pairs:
    """What `pair_tokens` gives of one image; `margin` is how far apart the cosines on both sides of the cut are."""

    index: Array
    into: Array
    score: Array
    gap: Array
    margin: float


def reference_pairs(key: Array, kept: int, prefix: int) -> Pairs:
    """The pairs of the keys [heads, tokens, channels] of one image, in float64."""
    metric = key.astype(np.float64).mean(axis=0)
    patches = range(prefix, len(metric))
    step = next(step for step in range(2, len(metric) + 1) if len(_every(step, patches)) <= kept)
    second = _every(step, patches)
    first = [token for token in patches if token not in second]
    cosine = {one: [_cosine(metric[one], metric[other]) for other in second] for one in first}
    best = {one: max(cosine[one]) for one in first}
    # The most similar join; of equal ones the lower position stays.
    joining = sorted(first, key=lambda one: (-best[one], -one))
    merged = len(patches) - kept
    survivors = [one for one in first if one not in joining[:merged]] + second
    into, score, gap = [], [], []
    for token in patches:
        score.append(PAIR_SCORE if token in second else -best[token])
        if token in survivors:
            into.append(survivors.index(token))
            gap.append(WIDEST_GAP)
            continue
        into.append(survivors.index(second[int(np.argmax(cosine[token]))]))
        others = sorted(cosine[token])
        gap.append(others[-1] - others[-2] if len(others) > 1 else WIDEST_GAP)
    cut = [best[one] for one in joining[max(merged - 1, 0) : merged + 1]]
    margin = cut[0] - cut[1] if 0 < merged < len(first) else WIDEST_GAP
    return Pairs(np.array(survivors) - prefix, np.array(into), np.array(score), np.array(gap), margin)


def _every(step: int, patches: range) -> list[int]:
    """The last of every `step` tokens, where it is a patch: those that others may join."""
    return [token for token in patches if token % step == step - 1]


def _cosine(a: Array, b: Array) -> float:
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-24))
