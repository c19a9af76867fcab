"""What a pair says is counted image by image."""

import numpy as np
import pytest

from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.loss import ClassChange, compare_predictions
from exporter.evaluation.paired import loss_bound, loss_interval, mcnemar
from exporter.evaluation.proportions import wilson

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
    assert pair.mcnemar_p == mcnemar(2, 0)
    assert pair.loss_points == pytest.approx(100 * 2 / 6)
    assert pair.loss_interval_points == pytest.approx(tuple(100 * each for each in loss_interval(2, 0, 6)))
    assert pair.loss_bound_points == pytest.approx(100 * loss_bound(2, 0, 6))


def test_the_other_way_round_it_is_a_gain() -> None:
    pair, back = (compare_predictions(*each, NAMES, {}) for each in ((FIRST, SECOND), (SECOND, FIRST)))
    assert (back.lost, back.gained) == (pair.gained, pair.lost)
    assert pair.loss_points is not None and back.loss_points == -pair.loss_points
    assert back.agreement == pair.agreement


def test_classes_that_occur_are_listed_with_their_change() -> None:
    pair = compare_predictions(FIRST, SECOND, NAMES, {2: "cat", 7: "fox"})
    assert pair.classes == (
        ClassChange(0, "0", images=3, first_hits=2, second_hits=1),
        ClassChange(2, "cat", images=2, first_hits=2, second_hits=1),
        ClassChange(5, "5", images=1, first_hits=1, second_hits=1),
    )
    assert [each.change for each in pair.classes] == [-1, -1, 0]


def test_without_labels_there_is_only_agreement() -> None:
    unknown = [-1] * 3
    pair = compare_predictions(predictions([0, 1, 2], unknown), predictions([0, 1, 0], unknown), NAMES, {})
    assert pair.agreement == pytest.approx(2 / 3)
    assert (pair.mcnemar_p, pair.loss_points, pair.lost, pair.classes) == (None, None, None, ())
