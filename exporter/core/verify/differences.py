"""Compare two runtimes: a few numbers of each image, output by output and layer by layer, joined over batches."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from exporter.core.base.errors import ParityError
from exporter.core.base.records import Output
from exporter.core.base.tensor_names import (
    Array,
    token_count_name,
    token_positions_name,
)
from exporter.core.base.vocabulary import OutputKind
from exporter.core.verify.decisions import LayerResult, MergeResult, Tensors

# Roundings in fp32 of a value whose deviation is small beside it.
SUMS = 8


def own_values(output: Output, tensors: Tensors) -> Array:
    """Return the values of an output in float64, [units, values of each], without padding."""
    values = _doubles(output, tensors)
    if output.kind == OutputKind.TOKENS:
        values = values[_unpadded(output, tensors)]
    return values.reshape(-1, output.units).T


def finite(output: Output, tensors: Tensors) -> Array:
    """Return whether all values of an image are finite, [images]; padding is ignored."""
    values = np.isfinite(tensors[output.name])
    if output.kind == OutputKind.TOKENS:
        values |= ~_unpadded(output, tensors)[..., None]
    return np.asarray(values.reshape(len(values), -1).all(axis=1))


def distance(output: Output, ours: Tensors, theirs: Tensors) -> Array:
    """Return the largest absolute difference in each image, [images, units]; NaN if a value is not finite.

    Tokens are matched by position; the difference is infinite if both sides have different positions.
    """
    if output.kind == OutputKind.VALUES:
        return _beyond_rounding(output, ours, theirs)
    our_rows, their_rows, shared = _rows(output, ours, theirs)
    with np.errstate(invalid="ignore"):
        difference = np.where(shared[..., None], np.abs(our_rows - their_rows), 0.0)
        largest = difference.max(axis=(1, 2), initial=0.0)
    if output.kind == OutputKind.TOKENS:
        for tensors in (ours, theirs):
            count = _unpadded(output, tensors).sum(axis=1)
            largest = np.where(count == shared.sum(axis=1), largest, np.inf)
    return largest[:, None]


def _beyond_rounding(output: Output, ours: Tensors, theirs: Tensors) -> Array:
    """Return how far values differ beyond what fp32 rounds of them: all images may have nearly the same."""
    our_values = _doubles(output, ours)
    their_values = _doubles(output, theirs)
    rounding = SUMS * np.finfo(np.float32).eps * np.abs(their_values)
    with np.errstate(invalid="ignore"):
        return np.maximum(np.abs(our_values - their_values) - rounding, 0.0)


def agreements(output: Output, ours: Tensors, theirs: Tensors) -> dict[str, Array]:
    """Return the measures of the output's kind, [images] each.

    Logits: whether the best class is equal, and the shared part of the five best. Labels: whether all are on the
    same side of 0. Values have none: their differences say all. Others: the lowest cosine between the embeddings,
    or between tokens at a position that both sides have; −1 if there is no such position.
    """
    if output.kind == OutputKind.VALUES:
        return {}
    if output.kind == OutputKind.LABELS:
        same = (ours[output.name] > 0) == (theirs[output.name] > 0)
        return {"same_labels": same.all(axis=1).astype(np.float64)}
    if output.kind == OutputKind.LOGITS:
        our_best = top_classes(_doubles(output, ours), 5)
        their_best = top_classes(_doubles(output, theirs), 5)
        same = our_best[:, 0] == their_best[:, 0]
        shared = (their_best[:, :, None] == our_best[:, None, :]).any(axis=2)
        return {"top1": same.astype(np.float64), "top5": shared.mean(axis=1)}
    return {"cosine": _least_cosines(output, ours, theirs)}


def _least_cosines(output: Output, ours: Tensors, theirs: Tensors) -> Array:
    """Return the lowest cosine of each image between rows that both sides have, −1 where there is none."""
    our_rows, their_rows, shared = _rows(output, ours, theirs)
    with np.errstate(invalid="ignore", over="ignore"):
        product = (our_rows * their_rows).sum(axis=2)
        lengths = np.linalg.norm(our_rows, axis=2) * np.linalg.norm(their_rows, axis=2)
        cosine = product / np.where(lengths == 0, 1.0, lengths)
    least = np.where(shared, cosine, np.inf).min(axis=1, initial=np.inf)
    return np.where(shared.any(axis=1), least, -1.0)


def class_margin(output: Output, reference: Tensors) -> Array:
    """Return by how much the best class of each image leads the next, [images]; infinite without classes.

    One logit tells two classes apart by its sign, and so does each label: the one nearest to 0 counts.
    """
    logits = _doubles(output, reference)
    if output.kind not in (OutputKind.LOGITS, OutputKind.LABELS):
        return np.full(len(logits), np.inf)
    if logits.shape[1] == 1 or output.kind == OutputKind.LABELS:
        return np.asarray(np.abs(logits).min(axis=1))
    ranked = np.sort(logits, axis=1)
    return np.asarray(ranked[:, -1] - ranked[:, -2])


def check_shapes(
    name: str, output: Output, tensors: Tensors, expected: Tensors
) -> None:
    """Raise ParityError unless the shapes match the expected ones; the number of tokens may differ."""
    got = tensors[output.name].shape
    needed = expected[output.name].shape
    fits = got == needed
    if output.kind == OutputKind.TOKENS:
        fits = got[:1] + got[2:] == needed[:1] + needed[2:]
        fits = fits and tensors[token_positions_name(output.name)].shape == got[:2]
    if not fits:
        raise ParityError(f"{name}: {output.name}", str(list(got)), str(list(needed)))


def _rows(output: Output, ours: Tensors, theirs: Tensors) -> tuple[Array, Array, Array]:
    """Return both sides as [images, rows, channels] with matching rows, and a mask of the rows that both have."""
    if output.kind != OutputKind.TOKENS:
        our_values = _doubles(output, ours)
        their_values = _doubles(output, theirs)
        shape = (len(our_values), -1, our_values.shape[-1])
        our_rows = our_values.reshape(shape)
        return our_rows, their_values.reshape(shape), np.ones(our_rows.shape[:2], bool)
    name = token_positions_name(output.name)
    positions = np.unique(np.hstack([ours[name], theirs[name]]))
    our_rows, in_ours = _by_position(output, ours, positions)
    their_rows, in_theirs = _by_position(output, theirs, positions)
    return our_rows, their_rows, in_ours & in_theirs


def _by_position(
    output: Output, tensors: Tensors, positions: Array
) -> tuple[Array, Array]:
    """Return tokens in a row for each of the `positions`, ascending, and a mask of the rows that have one."""
    tokens = _doubles(output, tensors)
    own_positions = tensors[token_positions_name(output.name)]
    image, token = np.nonzero(_unpadded(output, tensors))
    row = np.searchsorted(positions, own_positions[image, token])
    rows = np.zeros((len(tokens), positions.size, tokens.shape[2]))
    has_token = np.zeros((len(tokens), positions.size), bool)
    rows[image, row] = tokens[image, token]
    has_token[image, row] = True
    return rows, has_token


def _doubles(output: Output, tensors: Tensors) -> Array:
    return tensors[output.name].astype(np.float64)


def _unpadded(output: Output, tensors: Tensors) -> Array:
    """Return which tokens are not padding, [images, tokens]: all of them if there is no token count."""
    images, width = tensors[output.name].shape[:2]
    count = tensors.get(token_count_name(output.name), np.full(images, width))
    return np.arange(width) < count[:, None]


class Spread:
    """Standard deviations of values that arrive in batches, one in each unit."""

    def __init__(self, units: int = 1) -> None:
        self._count = 0
        self._mean = np.zeros(units)
        self._squares = np.zeros(units)

    def add(self, values: Array) -> None:
        """Add a batch, [units, values]; squares are summed around the means, so large logits lose no digits."""
        size = values.shape[1]
        shift = values.mean(axis=1) - self._mean
        total = self._count + size
        within = values.var(axis=1) * size
        between = shift**2 * self._count * size / total
        self._squares += within + between
        self._mean += shift * size / total
        self._count = total

    @property
    def std(self) -> Array:
        """Standard deviation of all values so far, [units]."""
        return np.asarray(np.sqrt(self._squares / self._count))


@dataclass(frozen=True)
class OutputDifferences:
    """One value per image in every array, of differences one in each unit; agreements by the kind's measures.

    `class_margin` is the reference's, see `class_margin`.
    """

    finite: Array
    diff: Array
    tracing_diff: Array
    forced_diff: Array
    class_margin: Array
    agreements: dict[str, Array]
    forced_agreements: dict[str, Array]


ResultT = TypeVar("ResultT", LayerResult, MergeResult, OutputDifferences)


@dataclass(frozen=True)
class Differences:
    """Outputs by name, and `layers` and `merges` from `compare_merges`: empty for a dense model."""

    outputs: dict[str, OutputDifferences]
    layers: list[LayerResult]
    merges: list[MergeResult]

    @staticmethod
    def joined(parts: Sequence["Differences"]) -> "Differences":
        """The batches as one."""
        layers = zip(*(part.layers for part in parts), strict=True)
        merges = zip(*(part.merges for part in parts), strict=True)
        outputs = {}
        for name in parts[0].outputs:
            outputs[name] = _joined([part.outputs[name] for part in parts])
        return Differences(outputs, [*map(_joined, layers)], [*map(_joined, merges)])

    @property
    def finite(self) -> Array:
        """Whether all values of an image are finite, in every output."""
        return np.all([output.finite for output in self.outputs.values()], axis=0)

    @property
    def flipped(self) -> Array:
        """Whether an image's decisions differ in any layer."""
        flips = [layer.flipped for layer in self.layers]
        flips += [merge.flipped for merge in self.merges]
        return np.any([np.zeros_like(self.finite), *flips], axis=0)

    @property
    def forced_alone(self) -> bool:
        """Whether outputs can be compared only with forced decisions: every image flips.

        In INT8, many patches nearly tie at the cut or between two survivors, and an image has hundreds.
        """
        return bool(self.layers) and bool(self.finite.any()) and not self.steady.any()

    @property
    def steady(self) -> Array:
        """Images whose outputs differ only by arithmetic: finite, with equal decisions in every layer."""
        return self.finite & ~self.flipped


def _joined(parts: Sequence[ResultT]) -> ResultT:
    """Join the results of batches: arrays end to end, also those in a dictionary."""

    def end_to_end(values: Sequence[Any]) -> Any:
        first = values[0]
        if isinstance(first, dict):
            return {name: end_to_end([part[name] for part in values]) for name in first}
        return np.concatenate(values) if isinstance(first, np.ndarray) else first

    joined = {}
    for field in fields(parts[0]):
        joined[field.name] = end_to_end([getattr(part, field.name) for part in parts])
    return replace(parts[0], **joined)


def top_classes(logits: Array, count: int) -> Array:
    """Return the best classes of each image, best first; of equal logits, the lower class comes first.

    The logits are [images, classes], finite. Where there are fewer classes than `count`, all are returned. One
    logit tells two classes apart by its sign: 1 above 0, else 0.
    """
    if logits.shape[1] == 1:
        return (logits > 0).astype(np.int64)
    count = min(count, logits.shape[1])
    # A few searches for the maximum, which finds the first of equals, are many times faster than sorting.
    left = logits.astype(np.promote_types(logits.dtype, np.float16))
    rows = np.arange(len(logits))
    best = np.empty((len(logits), count), np.int64)
    for place in range(count):
        best[:, place] = left.argmax(axis=1)
        left[rows, best[:, place]] = -np.inf
    return best
