"""The polynomial against the published samples, and against polynomials that are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.errors import DepthError
from exporter.depth.predictor import (
    CrossValidation,
    Predictor,
    Sample,
    accuracies_of,
    best_split,
    fit,
    fit_best,
    splits,
)
from tests.depth.published import DEPTH, PUBLISHED, SAMPLES

GRID = [(i / 6, j / 6) for i in range(6) for j in range(6)]


def test_least_squares_on_the_published_samples() -> None:
    found = fit_best(SAMPLES)
    expected = (14.4878, 99.9412, 29.4947, -45.8068, -14.0368, -2.4442)
    assert found.degree == 2 and found.coefficients == pytest.approx(expected, abs=5e-5)
    residuals = [
        s.accuracy - found.accuracy(s.attention, s.activation) for s in SAMPLES
    ]
    assert np.abs(residuals).mean() == pytest.approx(0.3045, abs=5e-5)
    assert np.sqrt(np.mean(np.square(residuals))) == pytest.approx(0.4168, abs=5e-5)


def test_cross_validation_of_the_published_samples() -> None:
    folds = CrossValidation(SAMPLES)
    expected = {1: 2.008, 2: 0.592, 3: 0.743, 4: 1.071}
    assert folds.rmse(accuracies_of(SAMPLES)) == pytest.approx(expected, abs=5e-4)
    assert folds.determined == (1, 2, 3), (
        "degree 4 has 15 coefficients, and the samples determine 14"
    )


@given(st.integers(1, 4), st.integers(0, 2**31))
def test_a_polynomial_is_found_again(degree: int, seed: int) -> None:
    count = (degree + 1) * (degree + 2) // 2
    truth = Predictor(degree, tuple(np.random.default_rng(seed).normal(0, 10, count)))
    samples = [Sample(a, t, truth.accuracy(a, t)) for a, t in GRID]
    assert fit(samples, degree).coefficients == pytest.approx(
        truth.coefficients, abs=1e-6
    )


def test_what_else_is_refused() -> None:
    with pytest.raises(
        DepthError,
        match=r"units \| got 24 \| need 0 to 23, two for each of the 12 layers",
    ):
        best_split(PUBLISHED, DEPTH, 24)
    with pytest.raises(
        DepthError,
        match=r"samples \| got 4 of them \| need at least 5 \| two models are left out",
    ):
        fit_best(SAMPLES[:4])
    attention_alone = SAMPLES[:9]
    with pytest.raises(DepthError, match="both types removed"):
        fit_best(attention_alone)


def test_a_degree_that_samples_leave_open_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folds = CrossValidation(SAMPLES)
    monkeypatch.setattr(folds, "rmse", lambda _: {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0})
    assert folds.best(accuracies_of(SAMPLES)) == 3


def test_the_published_polynomial() -> None:
    attention = [
        best_split(PUBLISHED, DEPTH, units).attention for units in range(1, 13)
    ]
    assert attention == [1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]


def test_of_equal_splits_the_first_wins() -> None:
    split = best_split(Predictor(1, (80.0, 0.0, 0.0)), DEPTH, 5)
    assert (split.attention, split.activation) == (0, 5)


@pytest.mark.parametrize(
    ("units", "first", "last"), [(0, 0, 0), (3, 0, 3), (4, 0, 3), (6, 2, 3), (7, 3, 3)]
)
def test_one_attention_stays(units: int, first: int, last: int) -> None:
    found = [
        (split.attention, split.activation) for split in splits(PUBLISHED, 4, units)
    ]
    assert found == [
        (attention, units - attention) for attention in range(first, last + 1)
    ]
