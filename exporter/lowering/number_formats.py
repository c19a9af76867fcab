"""The number formats of low precision: what a scale of them covers, and how values are stored in them."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

__all__ = ["E4M3", "INT7", "INT8", "LEAST_SCALE", "UINT8", "NumberFormat", "Range"]

# Scales are stored in fp16 where the rest is: one below 2⁻²⁵ would become 0, and one below 2⁻¹⁷ would lose more of
# its digits than rounding to INT8 does. A column of smaller weights has at least this scale, and fewer digits.
LEAST_SCALE = 2.0**-17

Array = np.ndarray[Any, Any]
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
        low, high = min(values[0], 0.0), max(values[1], 0.0)
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
