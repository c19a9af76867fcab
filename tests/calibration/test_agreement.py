"""How far two halves agree, and who is told."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from exporter.calibration.agreement import (
    CHECKS,
    ENOUGH,
    better_half_overlap,
    is_settled,
    unsettled,
    warn_where_unsettled,
)

seeds = st.integers(0, 10_000)


def shares(halves: NDArray[np.float64]) -> list[float]:
    overlap = better_half_overlap(halves)
    assert overlap is not None
    return overlap.tolist()


@given(seeds, st.integers(1, 5), st.integers(1, 40))
def test_it_is_the_share_of_the_better_half_that_both_choose(seed: int, layers: int, patches: int) -> None:
    halves = np.random.RandomState(seed).randint(1, 9, (2, layers, patches)).astype(float)  # with ties
    count = (patches + 1) // 2
    overlap = shares(halves)
    assert len(overlap) == layers
    for layer in range(layers):
        best = [
            set(sorted(range(patches), key=lambda place: (-row[place], place))[:count])
            for row in halves[:, layer]
        ]
        assert overlap[layer] == len(best[0] & best[1]) / count


@given(seeds, st.floats(0.01, 100))
def test_only_the_order_of_a_halfs_scores_matters(seed: int, scale: float) -> None:
    halves = np.random.RandomState(seed).random_sample((2, 3, 16))
    assert shares(halves) == shares(np.stack((scale * halves[0], halves[1] ** 2)))
    assert shares(np.stack((halves[0], scale * halves[0]))) == [1.0] * 3
    assert shares(np.stack((halves[0], 2 - halves[0]))) == [0.0] * 3


@pytest.mark.parametrize("without", [[0], [1], [0, 1]])
def test_nothing_is_said_of_a_half_without_scores(without: list[int]) -> None:
    halves = np.ones((2, 3, 16))
    halves[without] = 0
    assert better_half_overlap(halves) is None
    assert not is_settled(halves)


def test_the_least_layer_decides() -> None:
    ordered = np.arange(20.0, 0, -1)
    swapped = ordered.copy()
    swapped[[9, 10]] = swapped[[10, 9]]
    worse = swapped.copy()
    worse[[8, 11]] = worse[[11, 8]]
    assert shares(np.stack((np.stack((ordered,) * 2), np.stack((swapped, worse))))) == [0.9, 0.8]
    assert is_settled(np.stack((ordered[None], swapped[None])))
    assert not is_settled(np.stack((np.stack((ordered,) * 2), np.stack((swapped, worse)))))


def test_the_counts_of_auto_are_even_and_grow() -> None:
    assert list(CHECKS) == sorted({count for count in CHECKS if count % 2 == 0})


def test_only_the_layers_asked_for_are_looked_at() -> None:
    assert unsettled(np.array((0.5, ENOUGH, 0.89)), (2, 3)) == {3: 0.89}


def test_one_line_names_the_layers_and_the_worst(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_where_unsettled(np.array((0.5, 0.81, 0.95, 0.7)), (2, 3, 4), 64)
    (record,) = caplog.records
    assert "layers 2, 4 (0.70 in layer 4) with 64 images" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize(("overlap", "layers"), [(None, (1, 2)), ((0.5, 0.9), (2,)), ((0.5, 0.9), ())])
def test_nothing_is_said_of_what_is_settled_or_unknown(
    caplog: pytest.LogCaptureFixture, overlap: tuple[float, ...] | None, layers: tuple[int, ...]
) -> None:
    warn_where_unsettled(None if overlap is None else np.array(overlap), layers, 64)
    assert caplog.records == []
