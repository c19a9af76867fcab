"""Merging in NumPy, token by token: the reference for every implementation."""

from typing import Any

import numpy as np

from exporter.ops.factors import WIDEST_GAP

__all__ = ["reference_into", "reference_mean"]

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
    groups += [(prefix + np.flatnonzero(into == survivor)).tolist() for survivor in range(kept)]
    merged = [np.average(tokens[group].astype(np.float64), axis=0, weights=sizes[group]) for group in groups]
    return np.stack(merged), np.array([sizes[group].sum() for group in groups])


def _cosine(a: Array, b: Array) -> float:
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-24))
