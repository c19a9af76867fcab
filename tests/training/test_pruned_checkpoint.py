"""A pruned checkpoint gives back the schedule and the calibration bit for bit, and plain readers its weights."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from exporter.calibration.calibrate import calibrate
from exporter.calibration.record import Calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.core.base.errors import ArtefactError
from exporter.core.base.records import Schedule
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import schedule_of, shape_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.data.images import list_images
from exporter.models.identity import Identity, save_weights
from exporter.training.pruned_checkpoint import (
    SCHEDULE,
    pruning_records,
    read_pruning,
)

IDENTITY = Identity("tiny", "vit_tiny_patch16_224")


@pytest.fixture
def calibration(tiny_vit: PrunableViT, image_folder: Path) -> Calibration:
    return calibrate(tiny_vit, list_images(image_folder), CalibrationSettings(gamma=2))


@pytest.fixture
def schedule(tiny_vit: PrunableViT, calibration: Calibration) -> Schedule:
    settings = Prune("fused", rho=0.6, reduce="merge-weighted")
    return schedule_of(resolve(settings), tiny_vit.spec, calibration)


def save_pruned(pruned: PrunedViT, calibration: Calibration, path: Path) -> None:
    save_weights(
        pruned.model, IDENTITY, path, **pruning_records(pruned.schedule, calibration)
    )


def test_all_that_prunes_is_in_the_file(
    tiny_vit: PrunableViT, calibration: Calibration, schedule: Schedule, tmp_path: Path
) -> None:
    path, again = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    pruned = PrunedViT(tiny_vit, schedule, calibration.inter)
    for place in (path, again):
        save_pruned(pruned, calibration, place)
    assert path.read_bytes() == again.read_bytes()
    found = read_pruning(path)
    assert (
        found is not None
        and found.calibration is not None
        and calibration.inter is not None
    )
    assert found.schedule == schedule
    assert found.calibration.record == calibration.record
    assert found.calibration.inter is not None
    assert np.array_equal(found.calibration.inter, calibration.inter)
    assert np.array_equal(found.calibration.acs, calibration.acs)
    assert found.calibration.overlap_by_layer == calibration.overlap_by_layer


def test_a_schedule_without_scores_keeps_no_calibration(
    tiny_vit: PrunableViT, calibration: Calibration, tmp_path: Path
) -> None:
    schedule = shape_schedule(tiny_vit.spec, 0.7, resolve(Prune()))
    path = tmp_path / "a.safetensors"
    save_pruned(PrunedViT(tiny_vit, schedule), calibration, path)
    found = read_pruning(path)
    assert found is not None
    assert (found.schedule, found.calibration) == (schedule, None)


def test_an_ordinary_checkpoint_prunes_nothing(
    tiny_vit: PrunableViT, tmp_path: Path
) -> None:
    save_file(tiny_vit.model.state_dict(), tmp_path / "vit.safetensors")
    assert read_pruning(tmp_path / "vit.safetensors") is None
    assert read_pruning(tmp_path / "none.safetensors") is None


def test_a_record_that_is_no_schedule_is_refused(
    tiny_vit: PrunableViT, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    save_weights(tiny_vit.model, IDENTITY, path, **{SCHEDULE: IDENTITY})
    with pytest.raises(ArtefactError, match=r"a\.safetensors"):
        read_pruning(path)
