"""Intervals of shares and of losses."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import xlogy
from scipy.stats import binomtest, norm, sem

from exporter.core.base.intervals import (
    half_width,
    least_images,
    loss_interval,
    mean_interval,
    normal_quantile,
    wilson,
)

COUNTS = st.integers(1, 3000).flatmap(
    lambda images: st.tuples(st.integers(0, images), st.just(images))
)
CONFIDENCE = st.floats(0.5, 0.999)


@given(COUNTS, CONFIDENCE)
def test_it_is_scipys(counts: tuple[int, int], confidence: float) -> None:
    expected = binomtest(*counts).proportion_ci(confidence, method="wilson")
    assert wilson(*counts, confidence) == pytest.approx(
        (expected.low, expected.high), abs=1e-12
    )


def test_the_interval_of_a_mean_is_scipys() -> None:
    values = np.array([0.5, -1.0, 3.0, 0.25, 1.0])
    expected = norm.interval(0.9, values.mean(), sem(values))
    assert mean_interval(values, 0.9) == pytest.approx(expected)
    assert mean_interval(values[:1]) == (0.5, 0.5)


@given(COUNTS, CONFIDENCE)
def test_it_holds_the_share_and_lies_within_0_and_1(
    counts: tuple[int, int], confidence: float
) -> None:
    hits, images = counts
    low, high = wilson(hits, images, confidence)
    assert 0 <= low <= hits / images <= high <= 1
    assert low < high
    mirrored = wilson(images - hits, images, confidence)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@given(st.floats(0, 1), st.floats(0.002, 0.4))
def test_so_many_images_are_enough_and_one_fewer_is_not(
    rate: float, within: float
) -> None:
    enough = least_images(
        lambda images: half_width(wilson(rate * images, images)) <= within
    )
    assert half_width(wilson(rate * enough, enough)) <= within
    if enough > 1:
        assert half_width(wilson(rate * (enough - 1), enough - 1)) > within


def test_a_search_that_never_ends_ends() -> None:
    assert least_images(lambda _: False) == 2**40


SPLITS = st.integers(1, 400).flatmap(
    lambda images: st.integers(0, images).flatmap(
        lambda lost: st.tuples(
            st.just(lost), st.integers(0, images - lost), st.just(images)
        )
    )
)


@pytest.mark.parametrize(
    "counts", [(1, 7, 21), (6, 16, 161), (40, 20, 160), (0, 5, 300), (9, 0, 50)]
)
def test_the_limits_are_where_the_score_of_the_likeliest_model_is_the_quantile(
    counts: tuple[int, int, int],
) -> None:
    """With the likelihood of the counts maximised by scipy, not by the formula."""
    lost, gained, images = counts
    for limit, sign in zip(loss_interval(*counts), (1, -1), strict=True):

        def unlikely(g: float, loss: float = limit) -> float:
            chances = np.array([g + loss, g, 1 - 2 * g - loss])
            return -float(xlogy([lost, gained, images - lost - gained], chances).sum())

        bounds = (max(0.0, -limit) + 1e-12, (1 - limit) / 2 - 1e-12)
        g = minimize_scalar(
            unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-12}
        ).x
        score = (lost - gained - images * limit) / sqrt(
            images * (2 * g + limit - limit**2)
        )
        assert score == pytest.approx(sign * normal_quantile(0.975), rel=1e-3)


@given(SPLITS)
def test_the_interval_holds_the_loss_and_mirrors(
    counts: tuple[int, int, int],
) -> None:
    lost, gained, images = counts
    low, high = loss_interval(lost, gained, images)
    assert -1 <= low <= (lost - gained) / images + 1e-9
    assert (lost - gained) / images - 1e-9 <= high <= 1
    swapped = loss_interval(gained, lost, images)
    assert swapped == pytest.approx((-high, -low), abs=1e-7)


@given(st.integers(1, 10_000))
def test_without_a_differing_image_it_is_closed(images: int) -> None:
    square = normal_quantile(0.975) ** 2
    limit = square / (images + square)
    assert loss_interval(0, 0, images) == pytest.approx((-limit, limit), abs=1e-9)
