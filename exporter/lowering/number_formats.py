"""Number formats of low precision, and the range of each activation: that in which it loses least over images."""

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx

from exporter.errors import imported
from exporter.tensor_names import IMAGES, Array

# Scales are stored in fp16 where the rest is: one below 2⁻²⁵ would become 0, and one below 2⁻¹⁷ would lose more of
# its digits than rounding to INT8 does. A column of smaller weights has at least this scale, and fewer digits.
LEAST_SCALE = 2.0**-17

# The lowest and the highest value to represent.
Range: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class NumberFormat:
    """Numbers from `least` to `largest`, times a scale. Only an unsigned format has a zero point."""

    name: str
    dtype: np.dtype[Any]
    least: float
    largest: float

    @property
    def has_steps(self) -> bool:
        """Whether its numbers are integers, in equal steps; the precision of floats is relative."""
        return self.dtype.kind in "iu"

    def scale_of(self, values: Range) -> tuple[float, int]:
        """Return the scale and the zero point that cover this range and 0."""
        low = min(values[0], 0.0)
        high = max(values[1], 0.0)
        if self.least:
            return max(-low, high, self.largest * LEAST_SCALE) / self.largest, 0
        scale = max((high - low) / self.largest, LEAST_SCALE)
        return scale, round(-low / scale)

    def covered(self, values: Range) -> Range:
        """Return the range that this scale and zero point represent."""
        scale, zero = self.scale_of(values)
        return (self.least - zero) * scale, (self.largest - zero) * scale

    def stored(self, values: Array, scale: Array) -> Array:
        """Return the values in units of `scale`, rounded to the format."""
        within = np.clip(values / scale, self.least, self.largest)
        return (np.rint(within) if self.has_steps else within).astype(self.dtype)


INT8 = NumberFormat("int8", np.dtype(np.int8), -127, 127)
# Stored in bytes. Without VNNI, a CPU adds two products of UINT8 and signed bytes in 16 bits, and saturates: not
# for INT7, since 2 · 255 · 64 < 2¹⁵. An activation beyond its range is stored in 8 bits.
INT7 = NumberFormat("int7", np.dtype(np.int8), -64, 64)
UINT8 = NumberFormat("uint8", np.dtype(np.uint8), 0, 255)
# FP8 with 4 bits of exponent and 3 of mantissa (Micikevicius et al. 2022).
E4M3 = NumberFormat("fp8", np.dtype(ml_dtypes.float8_e4m3fn), -448, 448)


# Images per run, and the most values of all tensors of a run together: 0.5 GB.
_BATCH = 8
_MOST_VALUES = 2**27
# At most one value in this many is clipped at each end.
_ONE_OF = 10_000
# Numbers of clipped values that are compared.
_CANDIDATES = 50


def activation_ranges(
    model: onnx.ModelProto, formats: Mapping[str, NumberFormat], images: Array
) -> dict[str, Range]:
    """Return the range of each float32 tensor in which it loses least in its format.

    The model is in fp32, for ONNX Runtime; the images are [n, 3, H, W] as it takes them. `formats` has by
    name of a tensor what it will be rounded to.
    """
    tails = {name: Tails(form) for name, form in formats.items()}
    for values, runs in activations(model, formats, images):
        for name, array in values.items():
            tails[name].add(array, runs=runs)
    return {name: tail.fitted() for name, tail in tails.items()}


def activations(
    model: onnx.ModelProto, tensors: Collection[str], images: Array
) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield the values of each tensor, run by run of a few images as memory allows, and the number of runs."""
    session = _session(model, tensors)

    def run(batch: Array) -> dict[str, Array]:
        return dict(zip(tensors, session.run(list(tensors), {IMAGES: batch}), strict=True))

    values_of_one = sum(array.size for array in run(images[:1]).values())
    size = min(max(_MOST_VALUES // max(values_of_one, 1), 1), _BATCH)
    batches = np.array_split(images, -(-len(images) // size))
    for batch in batches:
        yield run(batch), len(batches)


@dataclass
class Tails:
    """The lowest and the highest values of a tensor, of all runs so far: these alone may be clipped.

    A format of floats clips nothing, since large values take no precision from small ones.
    """

    form: NumberFormat
    size: int = 0
    lowest: list[Array] = field(default_factory=list)
    highest: list[Array] = field(default_factory=list)

    def add(self, values: Array, *, runs: int = 1) -> None:
        """Take over the tails of one of `runs` runs, of about this size each."""
        values = values.ravel()
        self.size += values.size
        last = min(self._clipped(values.size * runs), values.size - 1)
        self.lowest.append(np.partition(values, last)[: last + 1])
        self.highest.append(np.partition(values, values.size - 1 - last)[-1 - last :])

    def fitted(self) -> Range:
        """Return the range of least squared error: values inside lose step² / 12 each, clipped ones what is cut.

        Large values stay where clipping them costs more than a finer step gains for the others.
        """
        lowest = np.sort(np.concatenate(self.lowest)).astype(np.float64)
        highest = np.sort(np.concatenate(self.highest)).astype(np.float64)
        most = min(self._clipped(self.size), len(lowest) - 1)
        counts = {0}
        if most:
            counts.update(np.geomspace(1, most, _CANDIDATES).round().astype(int).tolist())

        def error(values: Range) -> float:
            low, high = self.form.covered(values)
            below = np.maximum(low - lowest, 0)
            above = np.maximum(highest - high, 0)
            rounding = self.form.scale_of(values)[0] ** 2 / 12
            return float(self.size * rounding + below @ below + above @ above)

        ranges = [
            (float(lowest[count]), float(highest[-1 - count])) for count in sorted(counts)
        ]
        return min(ranges, key=error)

    def _clipped(self, size: int) -> int:
        """Return how many of so many values may be clipped at each end."""
        return size // _ONE_OF if self.form.has_steps else 0


def _session(model: onnx.ModelProto, tensors: Collection[str]) -> Any:
    onnxruntime = imported("onnxruntime", "onnxruntime", "onnxruntime")
    tracing = copy.deepcopy(model)
    outputs = {output.name for output in tracing.graph.output}
    tracing.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in tensors
        if name not in outputs
    )
    return onnxruntime.InferenceSession(
        tracing.SerializeToString(), providers=["CPUExecutionProvider"]
    )
