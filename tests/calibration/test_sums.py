"""The scores of many images, and their sums."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.calibration import sums
from exporter.calibration.importance import ImageScores
from exporter.calibration.settings import CalibrationSettings, planned_images
from exporter.calibration.sums import Sums, load_sums, save_sums, scored_chunks
from exporter.core.base.errors import ArtefactError
from exporter.data.images import list_images
from exporter.processes import Processes
from tests.calibration.samples import SPEC, pictures, tiny_vit

ALL = CalibrationSettings(dtype="float32")
ACS = replace(ALL, relevance=False)


def chunks_of(
    folder: Path, settings: CalibrationSettings
) -> tuple[list[str], list[list[Any]]]:
    """The names of the planned images, and their chunks."""
    planned = planned_images(list_images(folder), settings)
    return [item.file.path.name for item in planned], list(
        scored_chunks(tiny_vit(), planned, 2, settings)
    )


@pytest.mark.parametrize(
    ("settings", "sizes"), [(ALL, [1] * 10), (ACS, [8, 2])], ids=["all", "acs"]
)
def test_chunks_are_in_order(
    settings: CalibrationSettings, sizes: list[int], tmp_path: Path
) -> None:
    names, chunks = chunks_of(pictures(tmp_path, 10), settings)
    assert [len(chunk) for chunk in chunks] == sizes
    assert [item.file.path.name for chunk in chunks for item, _ in chunk] == names
    assert all(
        isinstance(scores, ImageScores) for chunk in chunks for _, scores in chunk
    )


class Shared(Processes):
    """The second of two processes; the first one gives nothing."""

    def gathered(self, part: Any) -> list[Any]:
        return [part]


def test_a_process_computes_its_own_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, whole = chunks_of(pictures(tmp_path, 5), ALL)
    monkeypatch.setattr(sums, "processes", lambda: Shared(1, 2))
    _, chunks = chunks_of(tmp_path, ALL)
    own = [pair for chunk in chunks for pair in chunk]
    assert [item.file.path.name for item, _ in own] == names[1::2]
    for (_, scores), chunk in zip(own, whole[1::2], strict=False):
        np.testing.assert_array_equal(scores.acs, chunk[0][1].acs)


def one(value: float, counted: list[bool]) -> ImageScores:
    mask = np.array(counted)
    return ImageScores(
        np.full(3, value), np.full((3, 16), value) * mask[:, None], mask, 2
    )


def test_means_are_over_images() -> None:
    sums = Sums.zero(SPEC).plus_skipped("a.png", "torn")
    for value, half in ((1.0, 0), (3.0, 1), (8.0, 0)):
        sums = sums.plus(one(value, [True] * 3), half)
    np.testing.assert_allclose(sums.mean_inter(), 4.0)
    np.testing.assert_allclose(sums.mean_acs(), 4.0)
    np.testing.assert_allclose(sums.halves[0], 9.0)
    np.testing.assert_allclose(sums.halves[1], 3.0)
    assert sums.counts.tolist() == [4, 3, 1, 6]


def test_a_layer_that_nothing_is_known_of_treats_patches_alike() -> None:
    mean = Sums.zero(SPEC).plus(one(4.0, [True, False, True]), 0).mean_inter()
    np.testing.assert_allclose(mean[1], 1 / 16)
    np.testing.assert_allclose(mean[[0, 2]], 4.0)


def test_adding_leaves_the_old_sums_alone() -> None:
    before = Sums.zero(SPEC)
    before.plus(one(1.0, [True] * 3), 0)
    assert before.halves.sum() == 0
    assert (
        before.inter.sum()
        + before.counted.sum()
        + before.acs.sum()
        + before.counts.sum()
        == 0
    )


def test_sums_come_back_for_their_own_job_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.partial"
    assert load_sums(path, "this job") is None
    sums = Sums.zero(SPEC).plus_skipped("a.png", "torn").plus(one(1.5, [True] * 3), 1)
    save_sums(sums, path, "this job")
    loaded = load_sums(path, "this job")
    assert loaded is not None
    assert loaded.skipped == {"a.png": "torn"}
    for name in vars(sums).keys() - {"skipped"}:
        assert getattr(sums, name).tolist() == getattr(loaded, name).tolist()
    with pytest.raises(
        ArtefactError,
        match=r"c\.partial \| got a calibration of other settings.*delete it",
    ):
        load_sums(path, "another job")
