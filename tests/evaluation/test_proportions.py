"""Wilson's interval is scipy's, and a number of images is the least that is enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from exporter.evaluation.proportions import half_width, images_for, normal_quantile, wilson

COUNTS = st.integers(1, 3000).flatmap(lambda images: st.tuples(st.integers(0, images), st.just(images)))
CONFIDENCE = st.floats(0.5, 0.999)


@given(COUNTS, CONFIDENCE)
def test_it_is_scipys(counts: tuple[int, int], confidence: float) -> None:
    expected = binomtest(*counts).proportion_ci(confidence, method="wilson")
    assert wilson(*counts, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(COUNTS, CONFIDENCE)
def test_it_holds_the_share_and_lies_within_0_and_1(counts: tuple[int, int], confidence: float) -> None:
    hits, images = counts
    low, high = wilson(hits, images, confidence)
    assert 0 <= low <= hits / images <= high <= 1
    assert low < high
    mirrored = wilson(images - hits, images, confidence)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@given(COUNTS)
def test_more_confidence_is_wider_and_more_images_are_narrower(counts: tuple[int, int]) -> None:
    hits, images = counts
    assert half_width(wilson(hits, images, 0.99)) > half_width(wilson(hits, images, 0.95))
    assert half_width(wilson(2 * hits, 2 * images)) < half_width(wilson(hits, images))


def test_no_hit_is_no_certainty() -> None:
    low, high = wilson(0, 100)
    assert low == 0
    assert high == pytest.approx(0.0370, abs=1e-4)
    assert wilson(100, 100)[1] == 1


@given(st.floats(0, 1), st.floats(0.002, 0.4))
def test_so_many_images_are_enough_and_one_fewer_is_not(rate: float, within: float) -> None:
    enough = images_for(lambda images: wilson(rate * images, images), within)
    assert half_width(wilson(rate * enough, enough)) <= within
    if enough > 1:
        assert half_width(wilson(rate * (enough - 1), enough - 1)) > within


def test_a_search_that_never_ends_ends() -> None:
    assert images_for(lambda _: (0.0, 1.0), 0.1) >= 2**40


@given(st.floats(0.001, 0.999))
def test_quantiles_are_scipys(share: float) -> None:
    assert normal_quantile(share) == pytest.approx(norm.ppf(share), abs=1e-9)
