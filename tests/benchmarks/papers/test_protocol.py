"""The paper's calibration: a mean over rounds of means over images, and ACS on other images."""

from pathlib import Path

import numpy as np
import pytest

from exporter.calibration.calibrate import calibrate
from exporter.calibration.record import load_calibration, save_calibration
from exporter.data.images import list_images
from tests.benchmarks.scripts import script
from tests.calibration.samples import pictures, tiny_vit

protocol = script("papers/protocol.py")


def test_relevance_is_the_mean_over_rounds_and_acs_that_of_its_own_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "ROUNDS", 3)
    vit, images = tiny_vit(), list_images(pictures(tmp_path / "images", 8))
    found = protocol.calibrate_rounds(vit, images, 3, 5)
    batches = [protocol._drawn(images, 3, f"0/round {index}") for index in range(3)]
    assert len({batch.files for batch in batches}) > 1
    tables = []
    for batch in batches:
        inter = calibrate(vit, batch, protocol.ALL).inter
        assert inter is not None
        tables.append(inter)
    np.testing.assert_allclose(found.inter, np.mean(tables, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(found.acs, protocol.calibrate_acs(vit, images, 5).acs)
    save_calibration(found, tmp_path / "c.safetensors")
    assert (
        load_calibration(tmp_path / "c.safetensors").inter_sha256 == found.inter_sha256
    )
