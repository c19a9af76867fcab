"""The split of a budget that the published and the fitted polynomial choose."""

import pytest

from exporter.depth.predictor import Predictor, best_split, fit_best, splits
from exporter.errors import DepthError
from tests.depth.published import DEPTH, PUBLISHED, SAMPLES

CHOSEN = {
    1: (1, 0),
    2: (2, 0),
    3: (2, 1),
    4: (3, 1),
    5: (3, 2),
    6: (3, 3),
    7: (4, 3),
    8: (4, 4),
    9: (4, 5),
    10: (5, 5),
    11: (5, 6),
    12: (5, 7),
}


@pytest.mark.parametrize("units", CHOSEN)
def test_the_published_polynomial(units: int) -> None:
    split = best_split(PUBLISHED, DEPTH, units)
    assert (split.attention, split.activation) == CHOSEN[units]


def test_the_fit_of_the_published_samples() -> None:
    split = best_split(fit_best(SAMPLES), DEPTH, 8)
    assert (split.attention, split.activation) == (2, 6)
    assert split.accuracy == pytest.approx(fit_best(SAMPLES).accuracy(2 / 12, 6 / 12))


def test_of_equal_splits_the_first_wins() -> None:
    split = best_split(Predictor(1, (80.0, 0.0, 0.0)), DEPTH, 5)
    assert (split.attention, split.activation) == (0, 5)


@pytest.mark.parametrize(("units", "first", "last"), [(0, 0, 0), (3, 0, 3), (4, 0, 3), (6, 2, 3), (7, 3, 3)])
def test_one_attention_stays(units: int, first: int, last: int) -> None:
    found = [(split.attention, split.activation) for split in splits(PUBLISHED, 4, units)]
    assert found == [(attention, units - attention) for attention in range(first, last + 1)]


@pytest.mark.parametrize("units", [24, -1])
def test_a_budget_beyond_all_units(units: int) -> None:
    with pytest.raises(DepthError) as error:
        best_split(PUBLISHED, DEPTH, units)
    assert (
        str(error.value)
        == f"units | got {units} | need 0 to 23, two for each of the 12 layers but one attention"
    )
