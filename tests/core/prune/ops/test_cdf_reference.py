"""The reference: every edge once, and the properties that hold for all rows."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exporter.core.base.errors import UserError
from exporter.core.prune.ops.cdf_reference import cdf_retain, largest_counts
from exporter.core.schedule.counts import keep_count
from tests.core.prune.ops.rows import score_rows


def kept(row: list[float], mass: float, valid: int | None = None) -> list[int]:
    """The survivors of one row."""
    score = np.array([row], dtype=np.float32)
    result = cdf_retain(score, np.array([valid or len(row)]), mass)
    return result.keep_index[0, : result.keep_count[0]].tolist()


@pytest.mark.parametrize(
    ("row", "mass", "expected"),
    [
        ([1, 6, 3, 2], 0.5, [1]),  # 6 of 12 are reached by one
        ([1, 6, 1, 2], 0.61, [1, 3]),
        ([2, 1, 6, 1], 0.79, [0, 2]),  # ascending, though 2 ranks first
        ([1, 1, 1, 1], 0.5, [0, 1]),  # ties go to the lower position
        ([1, 2, 2, 1], 0.34, [1, 2]),
        ([0, 0, 0, 0], 0.5, [0, 1]),  # nothing known: STAR's count
        ([0, 0, 5, 0], 0.99, [2]),
        ([np.nan, 1, -3, 1], 0.6, [1, 3]),  # NaN and negatives weigh nothing
        ([np.nan, -1, np.nan], 0.5, [0, 1]),
        ([np.inf, 1, 1, 1], 0.9, [0]),
        ([1, 0, 0, np.nan], 1.0, [0, 1, 2, 3]),  # a mass of 1 keeps every patch
        ([0.25], 0.1, [0]),
        ([1, 1, 1, 1], 1e-6, [0]),  # at least one
        ([1, 0, 0], 1 - 1e-9, [0, 1, 2]),  # in float32 that is 1
        ([3e-45, 1e-45, 1e-45], 0.5, [0]),  # subnormal numbers are numbers
    ],
)
def test_edges(row: list[float], mass: float, expected: list[int]) -> None:
    assert kept(row, mass) == expected


def test_rows_of_a_batch_are_padded_with_zeros() -> None:
    score = np.array([[9, 1, 0, 0], [1, 1, 1, 1]], dtype=np.float32)
    result = cdf_retain(score, np.array([4, 4]), 0.75)
    assert result.keep_index.tolist() == [[0, 0, 0], [0, 1, 2]]
    assert (result.keep_count.tolist(), int(result.width)) == ([1, 3], 3)


rows = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 40)),
    elements=st.floats(0, 1, width=32)
    | st.sampled_from([0.0, 0.5, 1.0, float("nan"), -1.0, float("inf")]),
)
masses = st.floats(2**-7, 1.0, width=32)


@given(rows, masses, st.data())
def test_an_image_keeps_the_same_patches_in_any_batch(
    score: np.ndarray, mass: float, data: st.DataObject
) -> None:
    valid = np.array([data.draw(st.integers(1, score.shape[1])) for _ in score])
    batch = cdf_retain(score, valid, mass)
    for row, count, index, kept_count in zip(
        score, valid, batch.keep_index, batch.keep_count, strict=True
    ):
        alone = cdf_retain(row[None, :count], np.array([count]), mass)
        assert kept_count == alone.keep_count[0]
        assert index[:kept_count].tolist() == alone.keep_index[0].tolist()
        assert not index[kept_count:].any()


@given(rows, masses)
def test_never_more_than_star_keeps(score: np.ndarray, mass: float) -> None:
    valid = np.full(len(score), score.shape[1])
    result = cdf_retain(score, valid, mass)
    assert result.keep_count.min() >= 1
    assert result.keep_count.max() <= keep_count(mass, score.shape[1])


@given(rows, masses, masses)
def test_more_mass_keeps_every_patch_that_less_mass_keeps(
    score: np.ndarray, one: float, other: float
) -> None:
    for row in score:
        less, more = (set(kept(row.tolist(), mass)) for mass in sorted((one, other)))
        assert less <= more


@given(masses, st.integers(1, 4096))
def test_largest_counts_are_the_schedules(mass: float, patches: int) -> None:
    assert largest_counts(mass, np.array([patches]))[0] == keep_count(mass, patches)


def exact_count(row: np.ndarray, mass: np.float32) -> int:
    """How many patches reach the mass by fractions, which do not round, at most STAR's count."""
    ranked = sorted((Fraction(float(score)) for score in row), reverse=True)
    threshold, before = Fraction(float(mass)) * sum(ranked), Fraction(0)
    for count, score in enumerate(ranked):
        if before >= threshold:
            return min(count, keep_count(float(mass), len(row)))
        before += score
    return keep_count(float(mass), len(row))


def test_counts_are_those_of_fractions() -> None:
    """2,000 rows of five shapes; one off where the mass is reached within a rounding of a unit."""
    off = []
    for kind in ("random", "uniform", "heavy-tailed", "attention", "steep"):
        for patches in (49, 196):
            score = score_rows(kind, 200, patches, seed=1)
            mass = np.float32(0.7 if patches == 49 else 0.95)
            counted = cdf_retain(
                score, np.full(len(score), patches), float(mass)
            ).keep_count
            exact = [exact_count(row, mass) for row in score]
            off += np.abs(counted - exact).tolist()
    assert len(off) == 2_000
    assert max(off) <= 1
    assert np.count_nonzero(off) <= 4


@pytest.mark.parametrize("mass", [0.0, -0.5, 1.5, 1e-50, float("nan")])
def test_mass_out_of_range(mass: float) -> None:
    with pytest.raises(UserError, match="mass"):
        kept([1, 2], mass)


ROW = np.ones((1, 3), np.float32)


@pytest.mark.parametrize(
    ("score", "valid", "what"),
    [
        (ROW[0], [3], "score"),
        (ROW.astype(np.float64), [3], "score"),
        (ROW.repeat(1366, 1), [4098], "4098 patches"),
        (ROW, [3, 3], "valid_count"),
        (ROW, [3.0], "valid_count"),
        (ROW, [0], "from 0"),
        (ROW, [4], "to 4"),
    ],
)
def test_inputs_out_of_range(score: np.ndarray, valid: list[int], what: str) -> None:
    with pytest.raises(UserError, match=what):
        cdf_retain(score, np.array(valid), 0.5)
