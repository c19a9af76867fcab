"""Number formats of low precision, and the range of each activation: that in which it loses least over images."""

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx

from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.lower.measuring import measuring_session

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
    tails: dict[str, Tails] = {}
    for values in activations(model, formats, images):
        for name, array in values.items():
            if name not in tails:
                tails[name] = Tails(formats[name], array.size * len(images))
            tails[name].add(array)
    return {name: tail.fitted() for name, tail in tails.items()}


def activations(
    model: onnx.ModelProto, tensors: Collection[str], images: Array
) -> Iterator[dict[str, Array]]:
    """Yield the values of each tensor, image by image: those of a batch would fill gigabytes."""
    session = _session(model, tensors)
    for image in np.split(images, len(images)):
        yield dict(
            zip(tensors, session.run(list(tensors), {IMAGES: image}), strict=True)
        )


@dataclass
class Tails:
    """The lowest and the highest of the `size` values of a tensor in all images: these alone may be clipped.

    A format of floats clips nothing, since large values take no precision from small ones.
    """

    form: NumberFormat
    size: int
    lowest: Array = field(default_factory=partial(np.empty, 0, np.float32))
    highest: Array = field(default_factory=partial(np.empty, 0, np.float32))

    @property
    def most(self) -> int:
        """How many values may be clipped at each end."""
        return self.size // _ONE_OF if self.form.has_steps else 0

    def add(self, values: Array) -> None:
        """Take over the tails of some of the values."""
        values = values.ravel()
        self.lowest = _lowest(self.lowest, values, self.most + 1)
        self.highest = -_lowest(-self.highest, -values, self.most + 1)

    def fitted(self) -> Range:
        """Return the range of least squared error: values inside lose step² / 12 each, clipped ones what is cut.

        Large values stay where clipping them costs more than a finer step gains for the others.
        """
        lowest = np.sort(self.lowest).astype(np.float64)
        highest = np.sort(self.highest).astype(np.float64)
        counts = {0}
        if self.most:
            counts.update(
                np.geomspace(1, self.most, _CANDIDATES).round().astype(int).tolist()
            )

        def error(values: Range) -> float:
            low, high = self.form.covered(values)
            below = np.maximum(low - lowest, 0)
            above = np.maximum(highest - high, 0)
            rounding = self.form.scale_of(values)[0] ** 2 / 12
            return float(self.size * rounding + below @ below + above @ above)

        ranges = [
            (float(lowest[count]), float(highest[-1 - count]))
            for count in sorted(counts)
        ]
        return min(ranges, key=error)


def _lowest(known: Array, values: Array, count: int) -> Array:
    """Return the `count` lowest of both, in any order."""
    if len(known) == count:
        values = values[values < known.max()]
    both = np.concatenate([known, values])
    return both if len(both) <= count else np.partition(both, count - 1)[:count]


def _session(model: onnx.ModelProto, tensors: Collection[str]) -> Any:
    tracing = copy.deepcopy(model)
    outputs = {output.name for output in tracing.graph.output}
    tracing.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in tensors
        if name not in outputs
    )
    return measuring_session(tracing.SerializeToString())
