"""CdfRetain in NumPy: the reference implementation for all other implementations of the operator.

STAR, Alg. 1, option 2: of each image's patches, the fewest whose scores reach a share of their sum. Sums of floats
depend on their order, which differs between runtimes; so mass is counted in integers, whose sums are exact.
"""

from typing import NamedTuple

import numpy as np

from exporter.core.base.errors import UserError
from exporter.core.base.tensor_names import Array
from exporter.core.schedule.counts import ROUNDING_GUARD

# Integers up to here, and their sums, are exact in float32.
EXACT_SUM = 2**24

# Patches per row: with more, a unit of mass would be coarser than 1/4096 of the row's largest score.
LARGEST_PATCHES = 4096


class Retained(NamedTuple):
    """The results of CdfRetain.

    `keep_index` [B, M] int64 holds each row's survivors, ascending, then zeros; `keep_count` [B] int64 is their
    number; `width` [] int64 is M, the largest count of the batch.
    """

    keep_index: Array
    keep_count: Array
    width: Array


def cdf_retain(score: Array, valid_count: Array, mass: float) -> Retained:
    """Keep, row by row, the fewest patches whose scores reach `mass` of the row's sum.

    1. Entries from `valid_count` on are ignored. NaN and negative scores count as 0, infinity as the largest
       float.
    2. Patches rank by score, descending; equal scores by position, ascending.
    3. A score becomes q = round(score / row maximum · floor(2²⁴ / valid_count)), quotient and product each rounded
       to float32, q to the nearest integer, ties to even: no q exceeds the unit, so sums of q are exact. The unit
       depends on the row alone, so an image keeps the same patches in any batch.
    4. A patch is kept while (sum of q ranked before it) < mass · (sum of all q), mass and product in float32.
       In a row without a positive score no patch is known to be safe to drop: rule 5 decides alone.
    5. At most k(mass, valid_count) are kept, STAR's count, and at least one. A mass of 1 keeps every valid patch.

    Args:
        score: [B, N] float32.
        valid_count: [B] integers in [1, N].
        mass: The share to reach, in (0, 1].

    Raises:
        UserError: A shape, a count or the mass is out of range.
    """
    share = checked_mass(mass)
    _check(score, valid_count)
    slots = np.arange(score.shape[1])
    order, units = _ranked(score, valid_count)
    before = units.cumsum(axis=1) - units
    total = units.sum(axis=1, keepdims=True)
    threshold = (
        share * total.astype(np.float32)
        if share < 1
        else np.full_like(total, np.inf, np.float32)
    )
    within = (before < threshold) | (total == 0)
    keep_count = (within & (slots < largest_counts(share, valid_count)[:, None])).sum(
        axis=1
    )
    width = keep_count.max()
    survivors = np.where(slots < keep_count[:, None], order, score.shape[1])
    keep_index = np.sort(survivors, axis=1)[:, :width]
    return Retained(
        np.where(keep_index < score.shape[1], keep_index, 0),
        keep_count,
        np.array(width),
    )


def largest_counts(mass: float | np.float32, valid_count: Array) -> Array:
    """Return k(p, n) = clamp(ceil(p·n − 1e-4), 1, n) in float32, for many n: STAR's counts, a-STAR's maxima."""
    product = np.float32(mass) * valid_count.astype(np.float32) - ROUNDING_GUARD
    return np.ceil(product).astype(np.int64).clip(1, valid_count)


def mass_before(score: Array, valid_count: Array) -> Array:
    """Return the share of its row's mass that ranks before each patch, [B, N] float64 in [0, 1]."""
    order, units = _ranked(score, valid_count)
    share = (units.cumsum(axis=1) - units) / np.maximum(
        units.sum(axis=1, keepdims=True), 1
    )
    before = np.empty_like(share)
    np.put_along_axis(before, order, share, axis=1)
    return before


def checked_mass(mass: float) -> np.float32:
    """Return the mass as the contract's float32; raise UserError unless it is in (0, 1]."""
    share = np.float32(mass)
    if not 0.0 < share <= 1.0:
        raise UserError("mass", str(mass), "a share in (0, 1]")
    return share


def _ranked(score: Array, valid_count: Array) -> tuple[Array, Array]:
    """Return patches by rank [B, N], and their mass in integer units; the first has floor(2²⁴ / valid_count)."""
    live = np.arange(score.shape[1]) < valid_count[:, None]
    usable = np.where(live & (score > 0), score, np.float32(0)).clip(
        max=np.finfo(np.float32).max
    )
    order = np.argsort(-usable, axis=1, kind="stable")
    ranked = np.take_along_axis(usable, order, axis=1)
    top = ranked[:, :1]
    largest = (EXACT_SUM // valid_count).astype(np.float32)[:, None]
    share = np.divide(ranked, top, out=np.zeros_like(ranked), where=top > 0)
    return order, np.rint(share * largest).astype(np.int64)


def _check(score: Array, valid_count: Array) -> None:
    if score.ndim != 2 or score.dtype != np.float32 or 0 in score.shape:
        raise UserError(
            "score", f"{score.dtype} {list(score.shape)}", "float32 [images, patches]"
        )
    if score.shape[1] > LARGEST_PATCHES:
        raise UserError(
            "score", f"{score.shape[1]} patches", f"at most {LARGEST_PATCHES}"
        )
    if valid_count.shape != score.shape[:1] or not np.issubdtype(
        valid_count.dtype, np.integer
    ):
        got = f"{valid_count.dtype} {list(valid_count.shape)}"
        raise UserError(
            "valid_count",
            got,
            f"integers [{score.shape[0]}], one for each row of the scores",
        )
    if valid_count.min() < 1 or valid_count.max() > score.shape[1]:
        got = f"counts from {valid_count.min()} to {valid_count.max()}"
        raise UserError("valid_count", got, f"counts from 1 to {score.shape[1]}")
