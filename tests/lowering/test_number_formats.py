"""Scales that cover a range, and values stored in units of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.lowering.number_formats import E4M3, INT7, INT8, LEAST_SCALE, UINT8, NumberFormat

ENDS = st.floats(-1000, 1000)
EVERY = pytest.mark.parametrize("form", [INT7, INT8, UINT8, E4M3], ids=lambda form: form.name)


@EVERY
@given(ENDS, ENDS)
def test_the_scale_covers_the_range_and_0_to_half_a_step(
    form: NumberFormat, one: float, other: float
) -> None:
    values = min(one, other), max(one, other)
    scale, zero = form.scale_of(values)
    low, high = form.covered(values)
    assert low - scale / 2 <= min(values[0], 0) * (1 + 1e-9) + 1e-9
    assert high + scale / 2 >= max(values[1], 0) * (1 - 1e-9) - 1e-9
    assert low <= 0 <= high and form.least <= zero <= form.largest


@EVERY
@pytest.mark.parametrize("values", [(0.0, 0.0), (-1e-9, 1e-9), (0.0, 1e-9)])
def test_the_least_scale_is_not_0_in_fp16(form: NumberFormat, values: tuple[float, float]) -> None:
    scale, _ = form.scale_of(values)
    assert scale >= LEAST_SCALE and np.float16(scale) > 0


def test_a_value_beyond_the_range_is_its_end() -> None:
    assert INT8.stored(np.array([-9.0, 0.44, 9.0]), np.array(0.1)).tolist() == [-90, 4, 90]
    assert INT8.stored(np.array([-90.0, 90.0]), np.array(0.1)).tolist() == [-127, 127]
    assert E4M3.stored(np.array([-900.0, 900.0]), np.array(1.0)).astype(float).tolist() == [-448, 448]


def test_which_formats_have_equal_steps() -> None:
    assert [form.has_steps for form in (INT7, INT8, UINT8, E4M3)] == [True, True, True, False]


def test_two_products_of_int7_with_unsigned_bytes_fit_16_bits() -> None:
    limits = np.iinfo(np.int16)
    assert limits.min <= 2 * UINT8.largest * INT7.least and 2 * UINT8.largest * INT7.largest <= limits.max
