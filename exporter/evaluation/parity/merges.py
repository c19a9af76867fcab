"""Compare, layer by layer, which survivor each patch joined in two runs of a batch, and how close the ties were."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exporter.errors import ParityError
from exporter.evaluation.parity.kept_sets import LayerResult
from exporter.evaluation.parity.report import Check
from exporter.evaluation.survivors import NOBODY, take
from exporter.tensor_names import gap_name, into_name, keep_name

__all__ = ["MergeResult", "compare_merges", "merge_checks"]

Array = np.ndarray[Any, Any]


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
    kept: Sequence[LayerResult], reference: Mapping[str, Array], tested: Mapping[str, Array]
) -> tuple[list[LayerResult], list[MergeResult]]:
    """Compare which survivor each patch joins; kept sets that differ only after a merge flip are not flips.

    Args:
        kept: The result of `compare_layers` for the same batch.
        reference: `keep_NN`, `into_NN` and `gap_NN` of each layer; without `into_NN` nothing is compared.
        tested: `keep_NN` and `into_NN`.

    Raises:
        ParityError: Indices of the reference are invalid, or those of the tested model have the wrong shape.
    """
    if not any(into_name(each.layer) in reference for each in kept):
        return list(kept), []
    images = len(kept[0].patches)
    ours = theirs = np.broadcast_to(np.arange(int(kept[0].patches[0])), (images, int(kept[0].patches[0])))
    same_so_far, judged, merges = np.ones(images, bool), list[LayerResult](), list[MergeResult]()
    for each in kept:
        layer, size = each.layer, int(kept[0].patches[0])
        _check_reference(layer, reference, ours.shape)
        malformed = _malformed(layer, tested, theirs.shape)
        joined, gap = _by_position(layer, reference, ours, size), np.zeros((images, size))
        np.put_along_axis(gap, ours, reference[gap_name(layer)], axis=1)
        other = _by_position(layer, tested, theirs, size)
        differ = joined != other
        flipped = same_so_far & ~each.differs & differ.any(1)
        first = each.flipped & same_so_far
        judged.append(replace(each, flipped=first, margin=np.where(first, each.margin, np.nan)))
        largest = np.where(flipped, np.where(differ, gap, 0.0).max(1), np.nan)
        merges.append(MergeResult(layer, _agreement(joined, other), flipped, largest, malformed))
        same_so_far &= ~(each.differs | differ.any(1))
        ours, theirs = (
            take(now, run[keep_name(layer)]) for now, run in ((ours, reference), (theirs, tested))
        )
    return judged, merges


def merge_checks(merges: Sequence[MergeResult], allowed: float) -> list[Check]:
    """Check that indices are valid and the gap of every flip is below `allowed`; [] if no tokens merge."""
    if not merges:
        return []
    malformed = int(np.any([each.malformed for each in merges], axis=0).sum())
    flipped = sum(int(each.flipped.sum()) for each in merges)
    gap = max(float(each.gap[each.flipped].max(initial=0.0)) for each in merges)
    return [
        Check(
            "merge_indices",
            malformed,
            "<=",
            0,
            malformed <= 0,
            "images with an index out of range, or a survivor that joins another",
        ),
        Check("merges", gap, "<", allowed, gap < allowed, f"{flipped} images merge differently"),
    ]


def _by_position(layer: int, run: Mapping[str, Array], positions: Array, size: int) -> Array:
    """Return, for each of `size` positions, the position of the survivor that its patch joins, or NOBODY."""
    keep = run[keep_name(layer)]
    places = run[into_name(layer)].clip(0, keep.shape[1] - 1)
    joined = np.full((len(keep), size), NOBODY)
    np.put_along_axis(joined, positions, np.take_along_axis(take(positions, keep), places, axis=1), axis=1)
    return joined


def _agreement(joined: Array, other: Array) -> Array:
    both = (joined != NOBODY) & (other != NOBODY)
    share: Array = (both & (joined == other)).sum(1) / np.maximum(both.sum(1), 1)
    return share


def _malformed(layer: int, run: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    """Return the images with an index out of range, or with a survivor that joins another one."""
    into, keep = run[into_name(layer)], run[keep_name(layer)]
    if into.shape != shape:
        raise ParityError(into_name(layer), str(list(into.shape)), f"{list(shape)}, one index per patch")
    own = np.take_along_axis(into, keep.clip(0, shape[1] - 1), axis=1)
    wrong: Array = ((into < 0) | (into >= keep.shape[1])).any(1) | (own != np.arange(keep.shape[1])).any(1)
    return wrong


def _check_reference(layer: int, run: Mapping[str, Array], shape: tuple[int, ...]) -> None:
    """Raise ParityError if indices or gaps of the reference are invalid."""
    if _malformed(layer, run, shape).any():
        raise ParityError(
            f"reference: {into_name(layer)}", "a survivor that joins another one", "each joins itself"
        )
    gap = run[gap_name(layer)]
    if gap.shape != shape or not (gap >= 0).all():
        raise ParityError(f"reference: {gap_name(layer)}", "NaN, or less than 0", "one gap >= 0 per patch")
