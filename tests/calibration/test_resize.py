from dataclasses import replace

import numpy as np
import pytest
import torch

from exporter.calibration.record import Calibration, CalibrationRecord, CalibrationSettings, check_fits
from exporter.calibration.resize import resize_scores, resized_to
from exporter.errors import CalibrationError
from exporter.records import ModelSpec
from tests.vits import make_vit


def made_at(spec: ModelSpec, *, relevance: bool = True) -> Calibration:
    settings = CalibrationSettings(relevance=relevance)
    record = CalibrationRecord(
        spec.name, "1" * 64, "2" * 64, 3, 0, 0, spec.grid, spec.preprocessing, settings
    )
    inter = np.random.default_rng(0).uniform(0.1, 1.0, (spec.depth, spec.num_patches)) if relevance else None
    return Calibration(record, np.linspace(0.1, 0.9, spec.depth), inter)


def test_a_plane_stays_a_plane() -> None:
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(4.0), indexing="ij")
    plane = (rows + 10 * columns).double().flatten().unsqueeze(0)
    finer = resize_scores(plane, (8, 4), (16, 8)).view(16, 8)
    inner = finer[2:-2, 2:-2]
    torch.testing.assert_close(inner.diff(dim=0), torch.full_like(inner.diff(dim=0), 0.5))
    torch.testing.assert_close(inner.diff(dim=1), torch.full_like(inner.diff(dim=1), 5.0))


@pytest.mark.parametrize("to", [(2, 3), (8, 8), (4, 12), (1, 1)])
def test_scores_stay_positive_and_constants_constant(to: tuple[int, int]) -> None:
    scores = torch.from_numpy(np.random.default_rng(1).uniform(0.1, 1.0, (3, 16)))
    resized = resize_scores(scores, (4, 4), to)
    assert resized.shape == (3, to[0] * to[1])
    assert (resized >= scores.min()).all() and (resized <= scores.max()).all()
    constant = resize_scores(torch.full((1, 16), 0.3, dtype=torch.float64), (4, 4), to)
    torch.testing.assert_close(constant, torch.full_like(constant, 0.3))


def test_halving_a_grid_counts_every_patch() -> None:
    scores = torch.zeros(1, 64, dtype=torch.float64)
    scores[0, 27] = 1.0
    assert resize_scores(scores, (8, 8), (4, 4)).sum() == pytest.approx(0.25, rel=0.2)


def test_a_calibration_moves_to_another_input() -> None:
    square, wide = make_vit().spec, make_vit("wide and low").spec
    calibration = made_at(square)
    with pytest.raises(CalibrationError, match="32x32 pixels"):
        check_fits(calibration, wide, "3" * 64)
    moved = resized_to(calibration, wide)
    assert moved.inter is not None
    assert moved.inter.shape == (wide.depth, 12)
    assert np.array_equal(moved.acs, calibration.acs)
    assert moved.inter_sha256 == resized_to(calibration, wide).inter_sha256 != calibration.inter_sha256
    check_fits(moved, wide, "")


def test_another_crop_is_not_another_size() -> None:
    """Interpolation moves scores between grids over one part of the image, not between parts."""
    wide = make_vit("wide and low").spec
    cropped = replace(wide, preprocessing=replace(wide.preprocessing, crop_pct=0.5))
    with pytest.raises(CalibrationError, match=r"crop_pct=0\.5"):
        check_fits(resized_to(made_at(make_vit().spec), cropped), cropped, "")


def test_nothing_happens_at_its_own_size_or_without_relevance() -> None:
    square, wide = make_vit().spec, make_vit("wide and low").spec
    calibration = made_at(square)
    assert resized_to(calibration, square) is calibration
    assert resized_to(made_at(square, relevance=False), wide).inter is None


@pytest.mark.parametrize("change", [{"name": "other"}, {"blocks": make_vit(depth=5).spec.blocks}])
def test_another_model_is_refused(change: dict[str, object]) -> None:
    wide = make_vit("wide and low").spec
    with pytest.raises(CalibrationError, match="4 layers of tiny"):
        resized_to(made_at(make_vit().spec), replace(wide, **change))  # type: ignore[arg-type]
