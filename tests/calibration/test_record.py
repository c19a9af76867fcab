"""A calibration is a file that comes back as it was, and fits its own model alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from exporter.calibration.record import (
    Calibration,
    CalibrationRecord,
    check_calibration,
    load_calibration,
    save_calibration,
)
from exporter.calibration.settings import CalibrationSettings
from exporter.core.base.canonical_json import to_json
from exporter.core.base.errors import ArtefactError, CalibrationError
from exporter.core.base.vocabulary import CropMode
from tests.calibration.samples import PREPROCESSING, SPEC


def calibration(**settings: Any) -> Calibration:
    chosen = CalibrationSettings(**settings)
    record = CalibrationRecord(
        "tiny", "aa", "bb", 5, 1, 0, SPEC.grid, PREPROCESSING, chosen
    )
    inter = np.random.RandomState(0).random_sample((3, 16))
    return Calibration(
        record, np.array([0.1, 0.3, 0.2]), inter if chosen.relevance else None
    )


def test_a_model_that_ends_earlier_has_the_first_layers() -> None:
    first = replace(calibration(), overlap=np.array([0.5, 1.0, 0.25])).of_first(2)
    assert (len(first.acs), first.overlap_by_layer) == (2, (0.5, 1.0))
    assert (
        first.inter is not None
        and calibration().inter is not None
        and len(first.inter) == 2
    )
    assert first.inter_sha256 != calibration().inter_sha256
    assert calibration(relevance=False).of_first(2).inter is None


@pytest.mark.parametrize(
    ("relevance", "overlap"),
    [(True, np.array([0.75, 0.5, 1.0])), (True, None), (False, None)],
)
def test_comes_back_as_it_was_saved(
    tmp_path: Path, relevance: bool, overlap: np.ndarray | None
) -> None:
    """Calibrations of 0.1 have no overlap."""
    saved = replace(calibration(relevance=relevance, max_images=None), overlap=overlap)
    save_calibration(saved, tmp_path / "c.safetensors")
    loaded = load_calibration(tmp_path / "c.safetensors")
    assert saved.record == loaded.record
    assert saved.acs.tolist() == loaded.acs.tolist()
    assert (saved.inter is None) == (loaded.inter is None)
    if saved.inter is not None and loaded.inter is not None:
        assert saved.inter.tolist() == loaded.inter.tolist()
    assert saved.inter_sha256 == loaded.inter_sha256
    assert saved.overlap_by_layer == loaded.overlap_by_layer


def test_fits_the_model_that_it_was_made_with() -> None:
    """Other mean colours do not move a patch."""
    colours = replace(SPEC, preprocessing=replace(PREPROCESSING, mean=(0.1, 0.1, 0.1)))
    for spec, weights in ((SPEC, "aa"), (SPEC, ""), (colours, "aa")):
        check_calibration(calibration(), spec, weights)


@pytest.mark.parametrize(
    ("change", "sha256", "part"),
    [
        ({}, "cc", "weights aa of tiny"),
        ({"blocks": SPEC.blocks * 4}, "aa", "12 layers of tiny"),
        ({"grid": (2, 2)}, "aa", "32x32 pixels in 2x2 patches"),
        (
            {"preprocessing": replace(PREPROCESSING, input_size=(3, 64, 64))},
            "aa",
            "64x64 pixels in 4x4",
        ),
        (
            {"preprocessing": replace(PREPROCESSING, crop_pct=1.0)},
            "aa",
            "got images by crop_mode=center crop_pct=0.9",
        ),
        (
            {"preprocessing": replace(PREPROCESSING, crop_mode=CropMode.SQUASH)},
            "",
            "need images by crop_mode=squash crop_pct=0.9 of tiny",
        ),
    ],
)
def test_another_model_is_one_line(
    change: dict[str, Any], sha256: str, part: str
) -> None:
    with pytest.raises(CalibrationError) as error:
        check_calibration(calibration(), replace(SPEC, **change), sha256)
    assert (
        part in str(error.value) and "calibrate" in str(error.value).rsplit("|", 1)[-1]
    )


@pytest.mark.parametrize(
    ("arrays", "record", "part"),
    [
        ({"acs": [1, 2, 3]}, None, "no 'record'"),
        ({"acs": [1, 2, 3]}, "{}", "missing required field"),
        ({"inter": [[1.0] * 16] * 3}, "here", "no 'acs'"),
    ],
)
def test_a_foreign_file_is_one_line(
    tmp_path: Path, arrays: dict[str, Any], record: str | None, part: str
) -> None:
    path = tmp_path / "c.safetensors"
    told = {None: None, "here": {"record": to_json(calibration().record)}}.get(
        record, {"record": str(record)}
    )
    save_file(
        {name: np.array(array, np.float64) for name, array in arrays.items()},
        path,
        metadata=told,
    )
    with pytest.raises(ArtefactError) as error:
        load_calibration(path)
    assert part in str(error.value)
    assert "need a calibration as star-export" in str(error.value)


@given(st.integers(1, 2000), st.none() | st.integers(1, 2000))
def test_gamma_is_six_or_all_classes_unless_it_is_said(
    classes: int, gamma: int | None
) -> None:
    settings = CalibrationSettings(gamma=gamma)
    if gamma is None:
        assert settings.classes_of(classes, "tiny") == min(6, classes)
    elif gamma <= classes:
        assert settings.classes_of(classes, "tiny") == gamma
    else:
        with pytest.raises(
            CalibrationError,
            match=f"got {gamma} .* at most {classes}, the classes of tiny",
        ):
            settings.classes_of(classes, "tiny")


def test_the_hash_names_the_scores() -> None:
    ours = calibration()
    assert ours.inter is not None
    assert ours.inter_sha256 == calibration().inter_sha256
    assert ours.inter_sha256 != replace(ours, inter=ours.inter + 1e-12).inter_sha256
    assert calibration(relevance=False).inter_sha256 == ""
