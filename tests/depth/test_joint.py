"""Pairs of units and rho: their predictions, what samples cover, and the front."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.depth.joint import Pair, best_pair, counts_of, front
from exporter.depth.predictor import Predictor, Sample
from tests.depth.published import DEPTH, SAMPLES

COSTS = st.tuples(st.integers(1, 9), st.integers(1, 9))


def pair(gmacs: float, accuracy: float, units: int = 0) -> Pair:
    return Pair(units, 0, 0.5, gmacs, accuracy)


def test_a_prediction_is_that_of_its_shares_and_rho() -> None:
    predictor = Predictor(1, (50.0, 20.0, 10.0, 15.0))
    found = Pair.predicted(predictor, 4, (1, 2), 0.8, 3e9)
    assert found == Pair(1, 2, 0.8, 3.0, 50 + 20 * 0.75 + 10 * 0.5 + 15 * 0.8)


def test_the_published_samples_cover_what_they_have() -> None:
    found = counts_of(SAMPLES, DEPTH)
    assert {(8, 0), (0, 8), (3, 3), (4, 4)} <= set(found)
    assert len(found) == len(set(found)) == 45
    assert all(attention + activation <= 8 for attention, activation in found)
    assert counts_of([Sample(1 / 3, 0.0, 80.0), Sample(0.0, 2 / 3, 80.0)], 3) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
    ]


def test_of_equal_predictions_the_one_with_fewer_units_is_the_best() -> None:
    assert best_pair([pair(2, 80, 1), pair(3, 80), pair(1, 79)]) == pair(3, 80)
    assert best_pair([pair(2, 80), pair(1, 80)]) == pair(1, 80)
    assert best_pair([]) is None


@given(st.lists(COSTS, max_size=20))
def test_the_front_is_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    every = [pair(gmacs, accuracy) for gmacs, accuracy in points]
    found = front(every)
    assert [each.gmacs for each in found] == sorted({each.gmacs for each in found})
    for each in every:
        beaten = any(
            other.gmacs <= each.gmacs and other.accuracy >= each.accuracy and other != each for other in every
        )
        assert (each in found) != beaten
