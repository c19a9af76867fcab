"""The calibration of the STAR paper: relevance over ten random batches, ACS of 500 images (Algorithm 2)."""

from dataclasses import replace

import numpy as np

from exporter.calibration.calibrate import calibrate
from exporter.calibration.record import Calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.core.vit.protocol import PrunableViT
from exporter.data.images import ImageFolder, dataset_sha256, draw

ROUNDS = 10
ALL = CalibrationSettings(max_images=None)
ACS_ALONE = CalibrationSettings(max_images=None, relevance=False)


def calibrate_acs(vit: PrunableViT, images: ImageFolder, count: int) -> Calibration:
    """Compute ACS on so many random images, or on all."""
    return calibrate(vit, _drawn(images, count, "0/acs"), ACS_ALONE)


def calibrate_rounds(
    vit: PrunableViT, images: ImageFolder, round_images: int, acs_images: int
) -> Calibration:
    """Compute relevance as the mean over `ROUNDS` batches of so many random images each, and ACS."""
    acs = calibrate_acs(vit, images, acs_images)
    files, tables = set(_drawn(images, acs_images, "0/acs").files), []
    for index in range(ROUNDS):
        batch = _drawn(images, round_images, f"0/round {index}")
        table = calibrate(vit, batch, ALL).inter
        assert table is not None
        tables.append(table)
        files |= set(batch.files)
    read = [file for file in images.files if file in files]
    record = replace(
        acs.record, settings=ALL, images=len(read), dataset_sha256=dataset_sha256(read)
    )
    return Calibration(record, acs.acs, np.mean(tables, axis=0))


def _drawn(images: ImageFolder, count: int, seed: str) -> ImageFolder:
    places = draw(len(images.files), count, seed)
    return replace(images, files=tuple(images.files[place] for place in places))
