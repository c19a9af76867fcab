"""Which patches survive, and what they cost."""

from pathlib import Path

import numpy as np
import pytest

from exporter.artefact import read_lowered
from exporter.errors import ArtefactError
from exporter.evaluation.survivors import NOBODY, positions_by_layer, survivors_of, useful_macs
from exporter.schedule.macs import dense_macs, pruned_macs
from exporter.vocabulary import Method
from tests.folders import write_folder


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


def test_those_of_the_schedule(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    dense, pruned = read_lowered(files.dense), read_lowered(files.pruned)
    spec = pruned.artefact.spec
    assert useful_macs(dense, {}).total == dense_macs(spec).total
    assert useful_macs(pruned, {}) == pruned_macs(spec, (16, 10, 10, 6))


def test_those_of_the_images(tmp_path: Path) -> None:
    pruned = read_lowered(write_folder(tmp_path, method=Method.A_STAR).pruned)
    spec = pruned.artefact.spec
    keep = {"keep_02": np.zeros((2, 10), int), "keep_04": np.zeros((2, 6), int)}
    counts = {"count_02": np.array([10, 4]), "count_04": np.array([6, 2])}
    few, many = (pruned_macs(spec, left).total for left in ((16, 4, 4, 2), (16, 10, 10, 6)))
    assert useful_macs(pruned, {**keep, **counts}).total == pytest.approx((few + many) / 2, abs=1)


def test_a_reference_that_does_not_say(tmp_path: Path) -> None:
    pruned = read_lowered(write_folder(tmp_path, method=Method.A_STAR).pruned)
    with pytest.raises(ArtefactError, match="no survivors of a-STAR"):
        useful_macs(pruned, {"count_02": np.array([10])})
