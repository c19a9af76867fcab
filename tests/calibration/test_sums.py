from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from exporter.calibration.importance import ImageScores
from exporter.calibration.sums import Sums, load_sums, save_sums
from exporter.errors import ArtefactError
from tests.calibration.specs import SPEC


def one(value: float, counted: list[bool]) -> ImageScores:
    mask = np.array(counted)
    return ImageScores(np.full(3, value), np.full((3, 16), value) * mask[:, None], mask, 2)


def test_means_are_over_each_rounds_images_and_then_over_rounds() -> None:
    sums = Sums.zero(SPEC, 2)
    for value, rounds, in_acs, half in ((1.0, (0, 1), True, 0), (3.0, (0,), False, 1), (9.0, (), True, 0)):
        sums = sums.plus(one(value, [True] * 3), rounds, in_acs=in_acs, half=half)
    np.testing.assert_allclose(sums.mean_inter(), (2.0 + 1.0) / 2)
    np.testing.assert_allclose(sums.mean_acs(), 5.0)
    np.testing.assert_allclose(sums.halves[0], 1.0)  # once, although two rounds have it
    np.testing.assert_allclose(sums.halves[1], 3.0)
    assert sums.counts.tolist() == [3, 3, 0, 2, 6]


def test_a_skipped_image_changes_counts_alone() -> None:
    sums = Sums.zero(SPEC, 1).plus_skipped("a.png", "torn")
    assert sums.counts.tolist() == [1, 0, 1, 0, 0]
    assert sums.skipped == {"a.png": "torn"}
    assert sums.done == 1


def test_a_layer_that_nothing_is_known_of_treats_patches_alike() -> None:
    mean = Sums.zero(SPEC, 2).plus(one(4.0, [True, False, True]), (0,), in_acs=True).mean_inter()
    np.testing.assert_allclose(mean[1], 1 / 16)
    np.testing.assert_allclose(mean[[0, 2]], 4.0)


def test_adding_leaves_the_old_sums_alone() -> None:
    before = Sums.zero(SPEC, 1)
    before.plus(one(1.0, [True] * 3), (0,), in_acs=True)
    assert before.halves.sum() == 0
    assert before.inter.sum() + before.counted.sum() + before.acs.sum() + before.counts.sum() == 0


def test_sums_come_back_for_their_own_job_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.partial"
    sums = Sums.zero(SPEC, 2).plus_skipped("a.png", "torn").plus(one(1.5, [True] * 3), (1,), in_acs=True)
    save_sums(sums, path, "this job")
    loaded = load_sums(path, "this job")
    assert loaded is not None
    assert loaded.skipped == {"a.png": "torn"}
    for name in vars(sums).keys() - {"skipped"}:
        assert getattr(sums, name).tolist() == getattr(loaded, name).tolist()
    assert load_sums(path, "another job") is None


def test_a_missing_file_holds_no_sums_and_a_foreign_one_is_refused(tmp_path: Path) -> None:
    assert load_sums(tmp_path / "none", "job") is None
    save_file({"x": np.zeros(1)}, tmp_path / "keyed", metadata={"key": '"job"'})
    save_file({"x": np.zeros(1)}, tmp_path / "weights")
    (tmp_path / "text").write_text("no sums")
    (tmp_path / "empty").touch()
    for name in ("keyed", "weights", "text", "empty"):
        with pytest.raises(ArtefactError, match=rf"{name} \| got .* \| need the sums of an unfinished"):
            load_sums(tmp_path / name, "job")
