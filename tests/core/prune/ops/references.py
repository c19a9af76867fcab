"""Merging, ToMe's pairs and packing in NumPy, token by token: the references for every implementation."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.core.prune.ops.factors import WIDEST_GAP
from exporter.core.prune.ops.merging import PAIR_SCORE

Array = np.ndarray[Any, Any]


def reference_into(key: Array, keep: Array, prefix: int) -> tuple[Array, Array]:
    """Places [n] of the survivors that the patches of one image join, and the gaps, in float64.

    `key` [heads, prefix + n, channels] are its keys.
    """
    mean = key.astype(np.float64).mean(axis=0)[prefix:]
    places, gaps = [], []
    for patch in range(len(mean)):
        if patch in keep:
            places.append(keep.tolist().index(patch))
            gaps.append(WIDEST_GAP)
            continue
        cosines = [_cosine(mean[patch], mean[survivor]) for survivor in keep]
        places.append(int(np.argmax(cosines)))
        best = sorted(cosines, reverse=True)
        gaps.append(best[0] - best[1] if len(best) > 1 else WIDEST_GAP)
    return np.array(places), np.array(gaps)


def reference_mean(
    tokens: Array, into: Array, sizes: Array | None, kept: int, prefix: int
) -> tuple[Array, Array]:
    """The merged tokens and sizes of one image, group by group, in float64."""
    sizes = np.ones(len(tokens)) if sizes is None else sizes
    groups = [[place] for place in range(prefix)]
    groups += [
        (prefix + np.flatnonzero(into == survivor)).tolist() for survivor in range(kept)
    ]
    merged = [
        np.average(tokens[group].astype(np.float64), axis=0, weights=sizes[group])
        for group in groups
    ]
    return np.stack(merged), np.array([sizes[group].sum() for group in groups])


@dataclass(frozen=True)
class Pairs:
    """What `pair_tokens` gives of one image; `margin` is how far apart the cosines on both sides of the cut are."""

    index: Array
    into: Array
    score: Array
    gap: Array
    margin: float


def reference_pairs(
    key: Array, kept: int, prefix: int, sizes: Array | None = None
) -> Pairs:
    """The pairs of the keys [heads, tokens, channels] of one image, by cosine, or by sizes too, in float64."""
    metric = key.astype(np.float64).mean(axis=0)
    patches = range(prefix, len(metric))
    step = next(
        step for step in range(2, len(metric) + 1) if len(_every(step, patches)) <= kept
    )
    second = _every(step, patches)
    first = [token for token in patches if token not in second]

    def alike(one: int, other: int) -> float:
        cosine = _cosine(metric[one], metric[other])
        return (
            cosine
            if sizes is None
            else (cosine - 1.0) * float(sizes[one] * sizes[other]) ** 0.25
        )

    likeness = {one: [alike(one, other) for other in second] for one in first}
    best = {one: max(likeness[one]) for one in first}
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
        into.append(survivors.index(second[int(np.argmax(likeness[token]))]))
        others = sorted(likeness[token])
        gap.append(others[-1] - others[-2] if len(others) > 1 else WIDEST_GAP)
    cut = [best[one] for one in joining[max(merged - 1, 0) : merged + 1]]
    margin = cut[0] - cut[1] if 0 < merged < len(first) else WIDEST_GAP
    return Pairs(
        np.array(survivors) - prefix,
        np.array(into),
        np.array(score),
        np.array(gap),
        margin,
    )


def _every(step: int, patches: range) -> list[int]:
    """The last of every `step` tokens, where it is a patch: those that others may join."""
    return [token for token in patches if token % step == step - 1]


def _cosine(a: Array, b: Array) -> float:
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-24))


def drawn_choice(rng: np.random.Generator, prefix: int) -> tuple[Array, Array, Array]:
    """Slots of up to four images, the survivors of each, ascending and padded with zeros, and their number."""
    batch, patches = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    count = rng.integers(1, patches + 1, batch)
    index = np.zeros((batch, count.max()), np.int64)
    for image, kept in enumerate(count):
        index[image, :kept] = np.sort(rng.permutation(patches)[:kept])
    return rng.integers(0, 99, (batch, prefix + patches)), index, count


def packed(
    slots: Array, index: Array, count: Array, prefix: int
) -> tuple[Array, Array, Array, Array]:
    """What packed tokens become: the same as `pack_tokens`."""
    rows: list[int] = []
    after = np.zeros((len(count), prefix + index.shape[1]), np.int64)
    places = []
    width = prefix + index.shape[1]
    for image, kept in enumerate(count):
        first = len(rows)
        tokens = [*range(prefix), *(prefix + index[image, :kept])]
        rows += slots[image, tokens].tolist()
        places += [image * width + place for place in range(len(tokens))]
        after[image] = [first + min(place, len(tokens) - 1) for place in range(width)]
    live = np.arange(width) < prefix + count[:, None]
    return np.array(rows), live, after, np.array(places)
