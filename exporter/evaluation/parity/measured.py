"""Numbers measured of each image, output by output and layer by layer, joined over batches."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from exporter.evaluation.parity.kept_sets import LayerResult
from exporter.evaluation.parity.merges import MergeResult
from exporter.records import Output

__all__ = ["Judged", "Measured", "MeasuredOutput", "Spread"]

Array = np.ndarray[Any, Any]
ResultT = TypeVar("ResultT", LayerResult, MergeResult)


class Spread:
    """Standard deviation of values that arrive in batches."""

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, values: Array) -> None:
        """Add a batch; squares are summed around the means, so large logits lose no digits."""
        shift = float(values.mean()) - self._mean
        total = self._count + values.size
        self._squares += float(values.var()) * values.size + shift**2 * self._count * values.size / total
        self._mean += shift * values.size / total
        self._count = total

    @property
    def std(self) -> float:
        """Standard deviation of all values so far."""
        return float(np.sqrt(self._squares / self._count))


@dataclass(frozen=True)
class Judged:
    """An output, and the standard deviation of the reference's values in it."""

    output: Output
    std: float


@dataclass(frozen=True)
class MeasuredOutput:
    """One value per image in every array; agreements by the measures of the output's kind."""

    finite: Array
    diff: Array
    tracing_diff: Array
    forced_diff: Array
    agreements: dict[str, Array]
    forced_agreements: dict[str, Array]

    @staticmethod
    def joined(parts: Sequence["MeasuredOutput"]) -> "MeasuredOutput":
        """The batches as one."""
        names = ("finite", "diff", "tracing_diff", "forced_diff")
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        own, forced = (
            {name: np.concatenate([part[name] for part in measures]) for name in measures[0]}
            for measures in ([part.agreements for part in parts], [part.forced_agreements for part in parts])
        )
        return MeasuredOutput(agreements=own, forced_agreements=forced, **arrays)


@dataclass(frozen=True)
class Measured:
    """Outputs by name, and `layers` and `merges` from `compare_merges`: empty for a dense model.

    `merges` is empty if patches are dropped.
    """

    outputs: dict[str, MeasuredOutput]
    layers: list[LayerResult]
    merges: list[MergeResult]

    @staticmethod
    def joined(parts: Sequence["Measured"]) -> "Measured":
        """The batches as one."""
        layers = [_join(results) for results in zip(*(part.layers for part in parts), strict=True)]
        merges = [_join(results) for results in zip(*(part.merges for part in parts), strict=True)]
        names = parts[0].outputs
        outputs = {name: MeasuredOutput.joined([part.outputs[name] for part in parts]) for name in names}
        return Measured(outputs, layers, merges)

    @property
    def finite(self) -> Array:
        """Whether all values of an image are finite, in every output."""
        return np.all([each.finite for each in self.outputs.values()], axis=0)

    @property
    def flipped(self) -> Array:
        """Whether an image's decisions differ in any layer."""
        flips = [each.flipped for each in self.layers] + [each.flipped for each in self.merges]
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


def _join(parts: Sequence[ResultT]) -> ResultT:
    """Join one layer's results over all batches."""
    names = [each.name for each in fields(parts[0]) if each.name != "layer"]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return replace(parts[0], **arrays)
