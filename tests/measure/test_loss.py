"""What is lost, and what is won back."""

import numpy as np
import pytest

from exporter.core.base.intervals import loss_interval, wilson
from exporter.core.base.vocabulary import Status
from exporter.measure.accuracy import Predictions
from exporter.measure.loss import ClassChange, compare_predictions, recovery_of
from tests.measure.hits import hits

NAMES = ("dense", "pruned")


def predictions(best: list[int], labels: list[int]) -> Predictions:
    return Predictions(np.array(best)[:, None], np.array(labels))


LABELS = [0, 0, 0, 2, 2, 5]
FIRST = predictions([0, 0, 1, 2, 2, 5], LABELS)
SECOND = predictions([0, 1, 1, 2, 5, 5], LABELS)


def test_lost_and_gained_are_counted() -> None:
    pair = compare_predictions(FIRST, SECOND, NAMES, {})
    assert (pair.first, pair.second, pair.images) == ("dense", "pruned", 6)
    assert (pair.lost, pair.gained) == (2, 0)
    assert pair.agreement == pytest.approx(4 / 6)
    assert pair.agreement_interval == wilson(4, 6)
    assert pair.loss_points == pytest.approx(100 * 2 / 6)
    assert pair.loss_interval_points == pytest.approx(
        tuple(100 * each for each in loss_interval(2, 0, 6))
    )


def test_classes_that_occur_are_listed_with_their_change() -> None:
    pair = compare_predictions(FIRST, SECOND, NAMES, {2: "cat", 7: "fox"})
    assert pair.classes == (
        ClassChange(0, "0", images=3, first_hits=2, second_hits=1),
        ClassChange(2, "cat", images=2, first_hits=2, second_hits=1),
        ClassChange(5, "5", images=1, first_hits=1, second_hits=1),
    )
    assert [label.change for label in pair.classes] == [-1, -1, 0]


@pytest.mark.parametrize(
    ("after", "of", "share", "status"),
    [
        (880, 1000, 0.8, Status.MET),
        (850, 1000, 0.5, Status.NOT_SHOWN),
        (810, 1000, 0.1, Status.MISSED),
        (9, 10, None, Status.NOT_SHOWN),  # one image more may be chance
    ],
)
def test_the_status_follows_the_limits(
    after: int, of: int, share: float | None, status: Status
) -> None:
    dense, before = (900, 800) if of == 1000 else (9, 8)
    found = recovery_of(hits(dense, of), hits(before, of), hits(after, of))
    assert found.share == (None if share is None else pytest.approx(share))
    assert found.status == status
    assert found.surplus_points == pytest.approx(
        100 * ((after - before) - 0.5 * (dense - before)) / of
    )
    low, high = found.surplus_interval_points
    assert low <= found.surplus_points <= high


def test_where_nothing_was_lost_there_is_no_share() -> None:
    same = hits(9, 10)
    assert recovery_of(same, same, same).share is None
    assert recovery_of(same, same, same).status == Status.MET
    assert recovery_of(same, hits(10, 10), same).share is None


def test_about_one_judgement_in_twenty_is_wrong_where_the_goal_is_just_reached() -> (
    None
):
    """Many draws of 400 images from models that win back exactly half."""
    random, wrong = np.random.default_rng(0), 0
    for _ in range(1000):
        chance = random.random(400)
        dense, before, after = chance < 0.9, chance < 0.7, chance < 0.8
        wrong += recovery_of(dense, before, after).status == Status.MISSED
    assert 30 <= wrong <= 75
