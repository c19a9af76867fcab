"""A calibration of ACS alone that nobody measured."""

from collections.abc import Sequence

import numpy as np

from exporter.calibration.record import Calibration, CalibrationRecord
from exporter.calibration.settings import CalibrationSettings
from exporter.models.base import PrunableViT

__all__ = ["acs_alone"]


def acs_alone(vit: PrunableViT, acs: Sequence[float]) -> Calibration:
    """Of this model."""
    spec, settings = vit.spec, CalibrationSettings(relevance=False)
    record = CalibrationRecord(
        spec.name, vit.weights_sha256, "", 1, 0, 0, spec.grid, spec.preprocessing, settings
    )
    return Calibration(record, np.array(acs), None)
