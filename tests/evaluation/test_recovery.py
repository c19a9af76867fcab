"""Whether half of a loss is won back is judged image by image, and few images show nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.evaluation.recovery import recovery_of
from exporter.vocabulary import Status
from tests.evaluation.hits import hits


@pytest.mark.parametrize(
    ("after", "of", "share", "status"),
    [
        (880, 1000, 0.8, Status.MET),
        (850, 1000, 0.5, Status.NOT_SHOWN),
        (810, 1000, 0.1, Status.MISSED),
        (9, 10, 1.0, Status.NOT_SHOWN),
    ],
)
def test_the_status_follows_the_limits(after: int, of: int, share: float, status: Status) -> None:
    dense, before = (900, 800) if of == 1000 else (9, 8)
    found = recovery_of(hits(dense, of), hits(before, of), hits(after, of))
    assert found.share == pytest.approx(share)
    assert found.status == status
    assert found.surplus_points == pytest.approx(100 * ((after - before) - 0.5 * (dense - before)) / of)
    low, high = found.surplus_interval_points
    assert low <= found.surplus_points <= high


def test_where_nothing_was_lost_there_is_no_share() -> None:
    same = hits(9, 10)
    assert recovery_of(same, same, same).share is None
    assert recovery_of(same, same, same).status == Status.MET
    assert recovery_of(same, hits(10, 10), same).share is None


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_the_goal_is_met_in_the_mean_where_the_share_reaches_it(seed: int, goal: float) -> None:
    random = np.random.default_rng(seed)
    dense, before, after = (random.random(50) < chance for chance in (0.9, 0.6, 0.8))
    found = recovery_of(dense, before, after, goal)
    if found.share is not None and abs(found.share - goal) > 1e-9:
        assert (found.share > goal) == (found.surplus_points > 0)


def test_about_one_judgement_in_twenty_is_wrong_where_the_goal_is_just_reached() -> None:
    """Many draws of 400 images from models that win back exactly half."""
    random, wrong = np.random.default_rng(0), 0
    for _ in range(1000):
        chance = random.random(400)
        dense, before, after = chance < 0.9, chance < 0.7, chance < 0.8
        wrong += recovery_of(dense, before, after).status == Status.MISSED
    assert 30 <= wrong <= 75
