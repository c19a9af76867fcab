"""Which patches survive each layer, in one form for all methods; and two runs of a batch compared by it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from exporter.core.base.errors import ParityError
from exporter.core.base.tensor_names import (
    Array,
    count_name,
    gap_name,
    into_name,
    keep_layers,
    keep_name,
    score_name,
)
from exporter.core.prune.ops.cdf_reference import mass_before

NOBODY = -1

# What a model returns for a batch, by name.
Tensors: TypeAlias = Mapping[str, Array]


def survivors_of(tensors: Tensors, layer: int) -> Array:
    """Return survivors of a 1-based layer [images, k] as indices into its input patches, padded with NOBODY."""
    keep = tensors[keep_name(layer)]
    if count_name(layer) not in tensors:
        return keep
    return np.where(
        np.arange(keep.shape[1]) < tensors[count_name(layer)][:, None], keep, NOBODY
    )


def positions_by_layer(tensors: Tensors, order: Array) -> dict[int, Array]:
    """Return the image positions of the patches left after each pruning layer, padded with NOBODY.

    `order` [patches] are the positions of all patches before the first (`exporter.core.prune.ops.curve.order_of`).
    """
    positions: dict[int, Array] = {}
    for layer in keep_layers(tensors):
        survivors = survivors_of(tensors, layer)
        if not positions:
            current = np.broadcast_to(order, (len(survivors), len(order)))
        current = take(current, survivors)
        positions[layer] = current
    return positions


def patches_left(tensors: Tensors, depth: int, num_patches: int) -> Array:
    """Return the number of patches that each image has left after each layer, [images, depth] int64."""
    positions = positions_by_layer(tensors, np.arange(num_patches))
    images = len(next(iter(tensors.values())))
    left = np.full(images, num_patches)
    columns = []
    for layer in range(depth + 1):
        left = (positions[layer] != NOBODY).sum(axis=1) if layer in positions else left
        columns.append(left)
    return np.stack(columns[1:], axis=1)


def take(positions: Array, survivors: Array) -> Array:
    """Return the positions [images, k] of survivors; an index out of range is clipped to the nearest valid one."""
    taken = np.take_along_axis(
        positions, survivors.clip(0, positions.shape[1] - 1), axis=1
    )
    return np.where(survivors == NOBODY, NOBODY, taken)


@dataclass(frozen=True)
class LayerResult:
    """One layer of one batch; every array has one entry per image.

    `patches` reach the layer and `kept` are left by the reference. `flipped`: the layer is the first in which the
    image's sets differ; else `margin` is NaN. `malformed`: indices are not distinct, in range and in order
    (ascending; for pairs, the reference's), or under STAR their number is wrong.
    """

    layer: int
    patches: Array
    kept: Array
    overlap: Array
    differs: Array
    flipped: Array
    margin: Array
    malformed: Array


def compare_layers(
    layers: Sequence[int],
    reference: Tensors,
    tested: Tensors,
    masses: Mapping[int, float],
    *,
    ascending: bool = True,
) -> list[LayerResult]:
    """Compare the survivors of every pruning layer, ascending and 1-based, of one batch.

    Args:
        layers: The pruning layers.
        reference: `keep_NN` and `score_NN` of each layer, under a-STAR also `count_NN`.
        tested: `keep_NN` of each layer, under a-STAR also `count_NN`.
        masses: The share of the mass that each layer keeps under a-STAR; empty under STAR.
        ascending: Whether survivors must be in ascending order; otherwise those of equal sets must be in the
            reference's, which says what the next layer pairs.
    """
    results: list[LayerResult] = []
    images, patches = reference[score_name(layers[0])].shape
    ours = theirs = np.broadcast_to(np.arange(patches), (images, patches))
    same_so_far = np.ones(images, bool)
    for layer in layers:
        score = reference[score_name(layer)]
        live = ours != NOBODY
        keep, survivors = survivors_of(reference, layer), _tested(tested, layer, images)
        _check_reference(layer, _in_order(keep, ascending), score, live)
        live_there = (theirs != NOBODY).sum(1)
        malformed = _malformed_indices(_in_order(survivors, ascending), live_there)
        malformed |= not masses and survivors.shape[1] != keep.shape[1]
        ours, theirs = take(ours, keep), take(theirs, survivors)
        overlap = _overlap(_marked(ours, patches), _marked(theirs, patches))
        differs = overlap < 1
        malformed |= same_so_far & ~differs & _reordered(ours, theirs)
        flipped = differs & same_so_far
        margin = _margin(score, live, keep, survivors, masses.get(layer))
        counts = live.sum(1), (keep != NOBODY).sum(1)
        flip = np.where(flipped, margin, np.nan)
        results.append(
            LayerResult(layer, *counts, overlap, differs, flipped, flip, malformed)
        )
        same_so_far &= ~differs
    return results


def _in_order(index: Array, ascending: bool) -> Array:
    """Return indices in ascending order: as they are where they should be in it."""
    return index if ascending else np.sort(index, axis=1)


def _tested(tested: Mapping[str, Array], layer: int, images: int) -> Array:
    """Return the survivors of a tested model; ParityError unless each image has some."""
    returned = tested[keep_name(layer)]
    if len(returned) != images or returned.shape[1] == 0:
        expected = f"some patches for each of {images} images"
        raise ParityError(keep_name(layer), str(list(returned.shape)), expected)
    return survivors_of(tested, layer)


def _marked(index: Array, size: int) -> Array:
    """Return a mask [images, size] of the indices; an index out of range is clipped."""
    marked = np.zeros((len(index), size + 1), bool)
    np.put_along_axis(
        marked, np.where(index == NOBODY, size, index.clip(0, size - 1)), True, axis=1
    )
    return marked[:, :size]


def _malformed_indices(index: Array, patches: Array) -> Array:
    """Return images whose indices are not ascending, distinct and below `patches`, or are none; NOBODY pads."""
    there = index != NOBODY
    steps = np.diff(np.hstack([np.full((len(index), 1), -1), index]), axis=1)
    wrong = there & ((steps <= 0) | (index < 0) | (index >= patches[:, None]))
    gaps = ~there[:, :-1] & there[:, 1:]
    return wrong.any(1) | gaps.any(1) | ~there.any(1)


def _reordered(ours: Array, theirs: Array) -> Array:
    """Return images whose survivors are in another order; none where the numbers of survivors differ."""
    if ours.shape != theirs.shape:
        return np.zeros(len(ours), bool)
    changed: Array = (ours != theirs).any(1)
    return changed


def _overlap(a: Array, b: Array) -> Array:
    share: Array = (a & b).sum(1) / (a | b).sum(1)
    return share


def _margin(
    score: Array, live: Array, keep: Array, survivors: Array, mass: float | None
) -> Array:
    """Return the largest distance of a flipped patch from the cut.

    Under STAR, the distance to the midpoint of the k-th and the (k+1)-th log fused score. Under a-STAR, the smaller
    of that and the distance of the mass before the patch to the mass to reach, as a share: two patches with tied
    scores may swap across the cut.
    """
    values = _finite(score)
    above = _marked(keep, score.shape[1])
    # In the first layer that differs, the indices of both sides refer to the same patches.
    flips = above ^ _marked(survivors, score.shape[1])
    worst_kept = np.where(above, values, np.inf).min(1)
    # A layer that keeps all patches has none below the cut: its lowest kept score is used instead.
    best_dropped = np.where(above | ~live, -np.inf, values).max(1)
    best_dropped = np.where(np.isneginf(best_dropped), worst_kept, best_dropped)
    middle = (worst_kept + best_dropped) / 2
    distance = np.abs(values - middle[:, None])
    if mass is not None:
        before = mass_before(np.exp(score), live.sum(1))
        distance = np.minimum(distance, np.abs(before - np.float32(mass)))
    margin: Array = np.where(flips, distance, 0.0).max(1)
    return margin


def _finite(score: Array) -> Array:
    """Return scores in float64; the log of a zero score becomes the lowest float32, so distances stay finite."""
    return np.maximum(score.astype(np.float64), np.finfo(np.float32).min)


def _check_reference(layer: int, keep: Array, score: Array, live: Array) -> None:
    """Raise ParityError unless the reference kept its best patches: otherwise margins are meaningless."""
    if not _chooses(score, keep, live):
        expected = f"those of the best {score_name(layer)}, each once"
        raise ParityError(f"reference: {keep_name(layer)}", "other patches", expected)


def _chooses(score: Array, keep: Array, live: Array) -> bool:
    """Whether each image keeps the best of its live patches by these scores."""
    if score.shape != live.shape or _malformed_indices(keep, live.sum(1)).any():
        return False
    above = _marked(keep, live.shape[1])
    worst_kept = np.where(above, score, np.inf).min(1)
    best_dropped = np.where(above | ~live, -np.inf, score).max(1)
    is_ranked = bool((score[live] < np.inf).all())
    return is_ranked and bool((worst_kept >= best_dropped).all())


@dataclass(frozen=True)
class MergeResult:
    """One layer of one batch in which tokens merge; every array has one entry per image.

    `agreement` is the share of the patches that reach the layer on both sides and join the same survivor.
    `flipped`: the layer is the first in which the image's decisions differ, and its kept sets are equal; elsewhere
    `gap` is NaN. `malformed`: an index is out of range, or a survivor does not join itself.
    """

    layer: int
    agreement: Array
    flipped: Array
    gap: Array
    malformed: Array


def compare_merges(
    results: Sequence[LayerResult], reference: Tensors, tested: Tensors
) -> tuple[list[LayerResult], list[MergeResult]]:
    """Compare which survivor each patch joins; kept sets that differ only after a merge flip are not flips.

    Both runs have `keep_NN` and `into_NN` of each layer, the reference also `gap_NN`; without `into_NN` nothing
    is compared. `results` are those of `compare_layers` for the same batch.
    """
    if not any(into_name(result.layer) in reference for result in results):
        return list(results), []
    images = len(results[0].patches)
    size = int(results[0].patches[0])
    ours = theirs = np.broadcast_to(np.arange(size), (images, size))
    same_so_far = np.ones(images, bool)
    judged = list[LayerResult]()
    merges = list[MergeResult]()
    for result in results:
        layer = result.layer
        _check_merges(layer, reference, ours.shape)
        malformed = _malformed_merges(layer, tested, theirs.shape)
        gap = np.zeros((images, size))
        np.put_along_axis(gap, ours, reference[gap_name(layer)], axis=1)
        joined = _by_position(layer, reference, ours, size)
        joined_there = _by_position(layer, tested, theirs, size)
        differ = joined != joined_there
        flipped = same_so_far & ~result.differs & differ.any(1)
        first = result.flipped & same_so_far
        margin = np.where(first, result.margin, np.nan)
        judged.append(replace(result, flipped=first, margin=margin))
        largest = np.where(flipped, np.where(differ, gap, 0.0).max(1), np.nan)
        agreement = _agreement(joined, joined_there)
        merges.append(MergeResult(layer, agreement, flipped, largest, malformed))
        same_so_far &= ~(result.differs | differ.any(1))
        ours = take(ours, reference[keep_name(layer)])
        theirs = take(theirs, tested[keep_name(layer)])
    return judged, merges


def _by_position(layer: int, run: Tensors, positions: Array, size: int) -> Array:
    """Return, for each of `size` positions, the position of the survivor that its patch joins, or NOBODY."""
    keep = run[keep_name(layer)]
    places = run[into_name(layer)].clip(0, keep.shape[1] - 1)
    joined = np.full((len(keep), size), NOBODY)
    np.put_along_axis(
        joined,
        positions,
        np.take_along_axis(take(positions, keep), places, axis=1),
        axis=1,
    )
    return joined


def _agreement(ours: Array, theirs: Array) -> Array:
    both = (ours != NOBODY) & (theirs != NOBODY)
    share: Array = (both & (ours == theirs)).sum(1) / np.maximum(both.sum(1), 1)
    return share


def _malformed_merges(layer: int, run: Tensors, shape: tuple[int, ...]) -> Array:
    """Return the images with an index out of range, or with a survivor that joins another one."""
    into = run[into_name(layer)]
    keep = run[keep_name(layer)]
    if into.shape != shape:
        raise ParityError(
            into_name(layer),
            str(list(into.shape)),
            f"{list(shape)}, one index per patch",
        )
    survivors = np.arange(keep.shape[1])
    outside = (into < 0) | (into >= len(survivors))
    # A survivor joins itself.
    joined = np.take_along_axis(into, keep.clip(0, shape[1] - 1), axis=1)
    wrong: Array = outside.any(1) | (joined != survivors).any(1)
    return wrong


def _check_merges(layer: int, run: Tensors, shape: tuple[int, ...]) -> None:
    """Raise ParityError if indices or gaps of the reference are invalid."""
    are_gaps = bool((run[gap_name(layer)] >= 0).all())
    if _malformed_merges(layer, run, shape).any() or not are_gaps:
        expected = "a survivor for each patch, itself for a survivor"
        raise ParityError(f"reference: {into_name(layer)}", "other places", expected)
