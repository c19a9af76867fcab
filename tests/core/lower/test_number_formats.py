"""Scales that cover a range, values stored in units of them, and the ranges in which activations lose least."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exporter.core.lower.number_formats import (
    E4M3,
    INT7,
    INT8,
    LEAST_SCALE,
    UINT8,
    NumberFormat,
    Range,
    Tails,
    activation_ranges,
)
from tests.core.lower.graphs import graph_of

ENDS = st.floats(-1000, 1000)
EVERY = pytest.mark.parametrize(
    "form", [INT7, INT8, UINT8, E4M3], ids=lambda form: form.name
)


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
def test_the_least_scale_is_not_0_in_fp16(
    form: NumberFormat, values: tuple[float, float]
) -> None:
    scale, _ = form.scale_of(values)
    assert scale >= LEAST_SCALE and np.float16(scale) > 0


def test_a_value_beyond_the_range_is_its_end_and_others_are_rounded() -> None:
    assert INT8.stored(np.array([-9.0, 0.46, 9.0]), np.array(0.1)).tolist() == [
        -90,
        5,
        90,
    ]
    assert INT8.stored(np.array([-90.0, 90.0]), np.array(0.1)).tolist() == [-127, 127]
    assert E4M3.stored(np.array([-900.0, 0.3, 900.0]), np.array(1.0)).astype(
        float
    ).tolist() == [-448, 0.3125, 448]


def test_two_products_of_int7_with_unsigned_bytes_fit_16_bits() -> None:
    limits = np.iinfo(np.int16)
    assert (
        limits.min <= 2 * UINT8.largest * INT7.least
        and 2 * UINT8.largest * INT7.largest <= limits.max
    )


def fitted(values: np.ndarray, form: NumberFormat) -> Range:
    tails = Tails(form, values.size)
    tails.add(values)
    return tails.fitted()


def squared_error(values: np.ndarray, within: Range, form: NumberFormat) -> float:
    scale, zero = form.scale_of(within)
    stored = np.clip(np.rint(values / scale) + zero, form.least, form.largest)
    return float((((stored - zero) * scale - values) ** 2).sum())


def normal(size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(size).astype(np.float32)


@given(hnp.arrays(np.float32, st.integers(1, 50), elements=st.floats(-9, 9, width=32)))
def test_of_few_values_none_is_clipped(values: np.ndarray) -> None:
    assert fitted(values, INT8) == fitted(values, E4M3) == (values.min(), values.max())


@pytest.mark.parametrize("form", [INT8, UINT8], ids=lambda form: form.name)
@pytest.mark.parametrize("outliers", [[], [20.0], [20.0, -30.0, 12.0], [-8.0] * 9])
def test_no_larger_error_than_of_the_whole_range(
    form: NumberFormat, outliers: list[float]
) -> None:
    values = normal(200_000)
    values[: len(outliers)] = outliers
    whole = float(values.min()), float(values.max())
    assert squared_error(values, fitted(values, form), form) <= 1.001 * squared_error(
        values, whole, form
    )


def test_a_single_outlier_is_clipped_and_many_large_ones_are_not() -> None:
    values = normal(200_000)
    values[0] = 30.0
    low, high = fitted(values, INT8)
    assert high < 30 and max(-low, high) > 4
    values[:1000] = 30.0
    assert fitted(values, INT8)[1] == 30.0


def test_an_outlier_that_costs_more_to_clip_stays() -> None:
    """A few activations of large networks are hundreds of times larger than the rest, and needed."""
    values = normal(200_000)
    values[:20] = 300.0
    assert fitted(values, INT8)[1] == 300.0


def test_floats_clip_nothing() -> None:
    values = normal(200_000)
    values[0] = 30.0
    assert fitted(values, E4M3) == (values.min(), values.max())


@pytest.mark.ort
def test_the_same_as_of_all_images_at_once() -> None:
    graph = graph_of(
        "(float[b, 3, 100, 100] images) => (float[b, 3, 100, 100] y) { y = Tanh (images) }",
        {},
        opset=20,
    )
    model = gs.export_onnx(graph)
    model.ir_version = 10
    images = normal(21 * 30_000).reshape(21, 3, 100, 100)
    found = activation_ranges(model, dict.fromkeys(("images", "y"), INT8), images)
    assert (
        found["images"] == fitted(images, INT8)
        and fitted(images, INT8)[1] < images.max()
    )
    assert found["y"] == pytest.approx(fitted(np.tanh(images), INT8), rel=1e-5)
