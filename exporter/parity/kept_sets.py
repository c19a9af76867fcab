"""Which patches two runs of a batch kept, layer by layer, and how near to the cut they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.errors import ParityError
from exporter.tensor_names import keep_name, score_name

__all__ = ["LayerVerdict", "judge_layers"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LayerVerdict:
    """One layer of one batch; every array has one entry an image.

    `margin` is NaN but where `flipped`: the layer is the first in which the image's sets differ.
    `malformed` marks indices that are not ascending, distinct and in range, or are another number of them.
    """

    layer: int
    patches: int
    kept: int
    overlap: Array
    differs: Array
    flipped: Array
    margin: Array
    malformed: Array


def judge_layers(
    layers: Sequence[int], reference: Mapping[str, Array], tested: Mapping[str, Array]
) -> list[LayerVerdict]:
    """Compare the survivors of every pruning layer of one batch.

    Args:
        layers: The pruning layers, ascending and 1-based.
        reference: `keep_NN` and `score_NN` of each layer.
        tested: `keep_NN` of each layer.

    Raises:
        ParityError: The reference's own survivors are not the best by its own scores, or the other's are none.
    """
    verdicts: list[LayerVerdict] = []
    patches = reference[score_name(layers[0])].shape[1]
    images = len(reference[score_name(layers[0])])
    ours = theirs = np.broadcast_to(np.arange(patches), (images, patches))
    same_so_far = np.ones(images, bool)
    for layer in layers:
        keep, score = reference[keep_name(layer)], reference[score_name(layer)]
        _check_reference(layer, keep, score, ours.shape[1])
        other = tested[keep_name(layer)]
        if len(other) != images or other.shape[1] == 0:
            raise ParityError(
                keep_name(layer), str(list(other.shape)), f"some patches for each of {images} images"
            )
        malformed = _malformed(other, theirs.shape[1], keep.shape[1])
        # In the first layer that differs, both sides still count within the same patches.
        flips = _marked(keep, score.shape[1]) ^ _marked(other, score.shape[1])
        ours, theirs = _of(ours, keep), _of(theirs, other)
        overlap = _overlap(_marked(ours, patches), _marked(theirs, patches))
        differs = overlap < 1
        flipped = differs & same_so_far
        margin = np.where(flipped, _margin(score, keep, flips), np.nan)
        sizes = score.shape[1], keep.shape[1]
        verdicts.append(LayerVerdict(layer, *sizes, overlap, differs, flipped, margin, malformed))
        same_so_far &= ~differs
    return verdicts


def _marked(index: Array, size: int) -> Array:
    marked = np.zeros((len(index), size), bool)
    np.put_along_axis(marked, np.clip(index, 0, size - 1), True, axis=1)
    return marked


def _of(positions: Array, index: Array) -> Array:
    """Positions in the image of the patches that `index` counts; a wrong index has been marked already."""
    return np.take_along_axis(positions, np.clip(index, 0, positions.shape[1] - 1), axis=1)


def _malformed(index: Array, size: int, count: int) -> Array:
    """Anything but `count` ascending, distinct numbers from 0 to `size` - 1."""
    if index.shape[1] != count:
        return np.ones(len(index), bool)
    below, above = np.full((len(index), 1), -1), np.full((len(index), 1), size)
    steps = np.diff(np.hstack([below, index, above]), axis=1)
    return np.any(steps <= 0, axis=1)


def _overlap(a: Array, b: Array) -> Array:
    share: Array = (a & b).sum(1) / (a | b).sum(1)
    return share


def _margin(score: Array, keep: Array, flips: Array) -> Array:
    """Distance of the farthest flipped patch to the midpoint of the k-th and the (k+1)-th score."""
    values = _finite(score)
    kept = _marked(keep, score.shape[1])
    worst_kept = np.where(kept, values, np.inf).min(1)
    # A layer that keeps everything has no patch below the cut: its last one stands for both.
    best_dropped = np.where(kept, -np.inf, values).max(1)
    best_dropped = np.where(np.isneginf(best_dropped), worst_kept, best_dropped)
    middle = (worst_kept + best_dropped) / 2
    margin: Array = np.where(flips, np.abs(values - middle[:, None]), 0.0).max(1)
    return margin


def _finite(score: Array) -> Array:
    """Scores in float64; the log of a zero score becomes the lowest float32, so that distances stay finite."""
    return np.maximum(score.astype(np.float64), np.finfo(np.float32).min)


def _check_reference(layer: int, keep: Array, score: Array, patches: int) -> None:
    """A margin means something only where the reference kept its own best patches."""
    subject = f"reference: {keep_name(layer)}"
    if score.shape[1] != patches:
        raise ParityError(subject, f"{score.shape[1]} scores", f"one for each of {patches} patches")
    if not (score < np.inf).all():
        raise ParityError(subject, f"NaN or +inf in {score_name(layer)}", "scores that can be ranked")
    if _malformed(keep, patches, keep.shape[1]).any():
        raise ParityError(subject, "indices out of order or range", f"ascending ones below {patches}")
    kept = _marked(keep, patches)
    if (np.where(kept, score, np.inf).min(1) < np.where(kept, -np.inf, score).max(1)).any():
        raise ParityError(subject, "a patch kept before a better one", f"the best by {score_name(layer)}")
