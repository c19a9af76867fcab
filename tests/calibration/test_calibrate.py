"""Calibrations of folders."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from exporter.calibration import calibrate as module
from exporter.calibration import settings as settings_of
from exporter.calibration import sums
from exporter.calibration.calibrate import (
    calibrate,
    calibrate_to,
    relevance_maps,
)
from exporter.calibration.importance import ImageScores, scores_of_image
from exporter.calibration.settings import CalibrationSettings, planned_images
from exporter.calibration.trace import in_dtype
from exporter.core.base.errors import ArtefactError, CalibrationError, OutputError
from exporter.core.base.records import normalise
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import with_outputs
from exporter.data.images import ImageFolder, dataset_sha256, list_images
from exporter.data.pixels import stream
from tests.calibration.samples import pictures, tiny_vit
from tests.vits import make_tower, make_vit


def test_the_maps_of_images_are_what_their_calibration_is_the_mean_of(
    tmp_path: Path,
) -> None:
    vit, settings = tiny_vit(), CalibrationSettings(gamma=2)
    found = list_images(pictures(tmp_path, 3))
    loaded = stream(found.files, vit.spec.preprocessing)
    pixels = np.stack([each.pixels for each in loaded if not each.reason])
    maps = relevance_maps(vit, pixels, settings)
    inter = calibrate(vit, found, settings).inter
    assert inter is not None and maps.shape == (3, *inter.shape)
    np.testing.assert_allclose(maps.mean(axis=0), inter, rtol=1e-12)
    assert not np.array_equal(maps[0], maps[1])
    assert np.array_equal(relevance_maps(vit, pixels[1:2], settings)[0], maps[1])


ALL = CalibrationSettings()
AUTO = CalibrationSettings(max_images="auto")
ACS = CalibrationSettings(relevance=False)


@pytest.fixture(scope="module")
def vit() -> PrunableViT:
    return tiny_vit()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageFolder:
    return list_images(pictures(tmp_path_factory.mktemp("images"), 20))


def alone(vit: PrunableViT, images: ImageFolder) -> list[Any]:
    """Every image's own scores, one by one."""
    double = in_dtype(vit, torch.float64)
    found = []
    for item in stream(images.files, vit.spec.preprocessing):
        assert not item.reason
        image = torch.from_numpy(normalise(item.pixels[None], vit.spec.preprocessing))
        found.append(scores_of_image(double, image, 6))
    return found


def test_all_images_are_averaged(vit: PrunableViT, images: ImageFolder) -> None:
    found, each = calibrate(vit, images, ALL), alone(vit, images)
    assert found.inter is not None
    np.testing.assert_allclose(
        found.inter, np.mean([scores.inter for scores in each], axis=0), rtol=1e-12
    )
    np.testing.assert_allclose(
        found.acs, np.mean([scores.acs for scores in each], axis=0), rtol=1e-12
    )
    assert found.record.images == 20
    assert found.record.skipped == 0
    assert found.record.empty_rows == 0
    assert vit.weights_sha256 == found.record.weights_sha256
    assert dataset_sha256(images.files) == found.record.dataset_sha256


def test_a_cap_draws_by_the_seed(vit: PrunableViT, images: ImageFolder) -> None:
    some = [
        calibrate(vit, images, replace(ALL, max_images=4, seed=seed))
        for seed in (0, 0, 1)
    ]
    assert some[0].record.images == 4
    assert some[0].inter_sha256 == some[1].inter_sha256 != some[2].inter_sha256
    assert some[0].record.dataset_sha256 != some[2].record.dataset_sha256


def test_the_overlap_is_that_of_the_means_of_two_halves(
    vit: PrunableViT, images: ImageFolder
) -> None:
    found, each = calibrate(vit, images, ALL), alone(vit, images)
    half = [image.half for image in planned_images(images, ALL)]
    tables = [
        np.mean(
            [s.inter for s, own in zip(each, half, strict=True) if own == side], axis=0
        )
        for side in (0, 1)
    ]
    shares = []
    for first, second in zip(*tables, strict=True):
        best = [
            set(np.argsort(-row, kind="stable")[:8].tolist()) for row in (first, second)
        ]
        shares.append(len(best[0] & best[1]) / 8)
    assert found.overlap is not None and found.overlap.tolist() == shares
    assert calibrate(vit, images, ACS).overlap is None
    assert calibrate(vit, images, replace(ALL, max_images=1)).overlap is None


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few enough for tests."""
    for place in (module, settings_of):
        monkeypatch.setattr(place, "CHECKS", (4, 8, 16))


def settled_at(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As if halves agreed from so many images on: counted in the first layer's sum of ones."""
    monkeypatch.setattr(sums, "scores_of_image", lambda *_: ImageScores(*ONES))
    monkeypatch.setattr(
        module, "is_settled", lambda halves: bool(halves[:, 0, 0].sum() >= count)
    )


ONES = (np.ones(3), np.ones((3, 16)), np.ones(3, bool))


@pytest.mark.usefixtures("checks")
@pytest.mark.parametrize(
    ("enough", "read"), [(1, 4), (4, 4), (5, 8), (9, 16), (17, 16)]
)
def test_auto_stops_at_the_first_check_that_is_settled_or_at_the_last(
    vit: PrunableViT,
    images: ImageFolder,
    monkeypatch: pytest.MonkeyPatch,
    enough: int,
    read: int,
) -> None:
    settled_at(monkeypatch, enough)
    seen: list[tuple[int, int]] = []
    found = calibrate(
        vit, images, AUTO, on_progress=lambda done, total: seen.append((done, total))
    )
    assert found.record.images == read == len(seen)
    assert [total for _, total in seen] == [
        4 if n <= 4 else 8 if n <= 8 else 16 for n in range(1, read + 1)
    ]
    files = [image.file for image in planned_images(images, AUTO)[:read]]
    assert found.record.dataset_sha256 == dataset_sha256(files)
    # Without relevance it is settled at once: images go in groups of eight past the check at 4.
    found = calibrate(vit, images, replace(AUTO, relevance=False))
    assert (found.record.images, found.overlap) == (8, None)


@pytest.mark.usefixtures("checks")
@pytest.mark.parametrize(
    ("settings", "settled", "stop", "count"),
    [
        (ALL, False, 1, 20),
        (ALL, False, 9, 20),
        (ACS, False, 1, 20),
        (ACS, False, 9, 20),
        (AUTO, False, 3, 16),
        (AUTO, False, 11, 16),
        (AUTO, True, 4, 4),
    ],
)
def test_an_interrupted_calibration_goes_on_to_the_same_bytes(
    vit: PrunableViT,
    images: ImageFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: CalibrationSettings,
    settled: bool,
    stop: int,
    count: int,
) -> None:
    monkeypatch.setattr(
        module, "is_settled", lambda halves: settled and bool(halves.any())
    )
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    partial = tmp_path / "resumed.partial"
    calibrate_to(whole, vit, images, settings)
    before: list[int] = []

    def interrupt(done: int, _total: int) -> None:
        before.append(done)
        if done >= stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_to(resumed, vit, images, settings, interrupt)
    assert partial.exists() and not resumed.exists()
    after: list[int] = []
    calibrate_to(
        resumed, vit, images, settings, lambda done, _total: after.append(done)
    )
    progress = [*before, *after]
    assert progress == sorted({*progress}) and progress[-1] == count
    assert whole.read_bytes() == resumed.read_bytes()
    assert not partial.exists()


def test_a_kill_loses_no_more_than_the_images_since_the_last_save(
    vit: PrunableViT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVE_EVERY", 4)
    images = list_images(pictures(tmp_path / "images", 20))
    images.files[0].path.write_text("no image")

    def kill(done: int, _total: int) -> None:
        if done == 6:
            shutil.copy(tmp_path / "whole.partial", tmp_path / "resumed.partial")

    calibrate_to(tmp_path / "whole", vit, images, ALL, kill)
    after: list[int] = []
    resumed = calibrate_to(
        tmp_path / "resumed", vit, images, ALL, lambda done, _total: after.append(done)
    )
    assert list(range(5, 21)) == after
    assert list(resumed.skipped) == [images.name_of(images.files[0].path)]
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "resumed").read_bytes()


@pytest.mark.parametrize("other", [{"seed": 1}, {"gamma": 2}, None], ids=str)
def test_sums_of_other_settings_or_of_another_program_are_refused_and_left_alone(
    vit: PrunableViT, images: ImageFolder, tmp_path: Path, other: dict[str, Any] | None
) -> None:
    partial = tmp_path / "c.partial"
    if other is None:
        partial.write_bytes(b"no sums")
    else:
        calibrate(vit, images, replace(ACS, **other), partial=partial)
    before = partial.read_bytes()
    with pytest.raises(
        ArtefactError, match=r"c\.partial \| got .* \| delete it to start again"
    ):
        calibrate_to(tmp_path / "c", vit, images, ACS)
    assert [path.name for path in tmp_path.iterdir()] == ["c.partial"]
    assert partial.read_bytes() == before


@pytest.mark.parametrize("settings", [ALL, ACS], ids=["all", "acs"])
def test_broken_images_among_good_ones_are_counted(
    vit: PrunableViT,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    settings: CalibrationSettings,
) -> None:
    good = calibrate(vit, list_images(pictures(tmp_path, 10)), settings)
    (tmp_path / "0045.png").write_text("no image")
    found = calibrate(vit, list_images(tmp_path), settings)
    assert (found.record.images, found.record.skipped) == (10, 1)
    np.testing.assert_allclose(found.acs, good.acs, rtol=1e-5, atol=1e-6)
    assert good.inter_sha256 == found.inter_sha256
    assert "0045.png" in caplog.text


def test_relevance_starts_at_a_linear_head(images: ImageFolder) -> None:
    """The head of a tower is one: its embedding's length is explained."""
    tower, headless = make_tower(), make_vit()
    headless.classifiers = []
    for vit in (headless, make_vit("pooled by attention")):
        with pytest.raises(
            CalibrationError, match=r"need a head that is linear .* --scorer received"
        ):
            calibrate(vit, images, ALL)
    assert calibrate(tower, images, ACS).inter is None
    assert calibrate(tower, images, ALL).inter is not None
    with pytest.raises(
        CalibrationError, match="at most 1, the classes of tower, or 1 for an embedding"
    ):
        calibrate(tower, images, CalibrationSettings(gamma=2))


def test_other_outputs_are_explained_by_the_models_own(
    vit: PrunableViT, images: ImageFolder
) -> None:
    whole, chosen = (
        calibrate(each, images, ALL) for each in (vit, with_outputs(vit, ["embedding"]))
    )
    np.testing.assert_array_equal(chosen.inter, whole.inter)


def test_the_place_is_tried_before_the_work(
    vit: PrunableViT, images: ImageFolder, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    def never(_done: int, _total: int) -> None:
        pytest.fail("work was done for a place that cannot be written")

    with pytest.raises(OutputError):
        calibrate_to(tmp_path / "file" / "c", vit, images, ALL, never)
