"""One form for the survivors of STAR and a-STAR."""

import numpy as np

from exporter.evaluation.survivors import NOBODY, positions_by_layer, survivors_of


def test_positions_compose() -> None:
    positions = positions_by_layer({"keep_01": np.array([[0, 2, 3]]), "keep_04": np.array([[1, 2]])})
    assert positions[1].tolist() == [[0, 2, 3]]
    assert positions[4].tolist() == [[2, 3]]


def test_padding_is_nobody_and_stays_so() -> None:
    tensors = {
        "keep_02": np.array([[1, 3, 0], [0, 2, 3]]),
        "count_02": np.array([2, 3]),
        "keep_03": np.array([[1, 0], [0, 2]]),
        "count_03": np.array([1, 2]),
    }
    assert survivors_of(tensors, 2).tolist() == [[1, 3, NOBODY], [0, 2, 3]]
    assert positions_by_layer(tensors)[3].tolist() == [[3, NOBODY], [0, 3]]


def test_nothing_was_pruned() -> None:
    assert positions_by_layer({"logits": np.zeros((1, 2))}) == {}
