"""What prunes the weights of a checkpoint, in its metadata: a schedule and, where scores need it, a calibration."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.calibration.record import ARRAYS, Calibration, calibration_of
from exporter.core.base.canonical_json import from_json
from exporter.core.base.errors import ArtefactError, reason_of
from exporter.core.base.records import Schedule
from exporter.models.identity import read_metadata

SCHEDULE, CALIBRATION = "schedule", "calibration"
# What fine-tuning measured (`exporter.measure.loss.Tuned`).
TUNED = "tuned"


@dataclass(frozen=True, eq=False)
class Pruning:
    """What prunes the weights of a checkpoint: they were trained with it."""

    schedule: Schedule
    calibration: Calibration | None


def pruning_records(
    schedule: Schedule, calibration: Calibration | None
) -> dict[str, object]:
    """Return the records that say what prunes weights, by their names in the metadata."""
    records: dict[str, object] = {SCHEDULE: schedule}
    if calibration is not None and schedule.inter_sha256:
        # Numbers in JSON are read back bit for bit.
        lists = {}
        for name in ARRAYS:
            array = getattr(calibration, name)
            lists[name] = None if array is None else array.tolist()
        records[CALIBRATION] = {"record": calibration.record, **lists}
    return records


def read_pruning(path: Path) -> Pruning | None:
    """Read what prunes a checkpoint's weights; None where the file is an ordinary checkpoint.

    Raises:
        ArtefactError: The metadata is broken.
    """
    metadata = read_metadata(path)
    if SCHEDULE not in metadata:
        return None
    schedule = from_json(Schedule, metadata[SCHEDULE], source=str(path))
    text = metadata.get(CALIBRATION)
    calibration = None if text is None else _calibration_of(text, str(path))
    if schedule.inter_sha256 and (
        calibration is None or calibration.inter_sha256 != schedule.inter_sha256
    ):
        got = "inter-layer scores other than those of its schedule"
        raise ArtefactError(path, got, "a checkpoint of star-export finetune")
    return Pruning(schedule, calibration)


def _calibration_of(text: str, source: str) -> Calibration:
    try:
        lists: dict[str, Any] = json.loads(text)
        record = json.dumps(lists.pop("record"))
        arrays = {
            name: np.array(numbers, np.float64)
            for name, numbers in lists.items()
            if numbers is not None
        }
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            source, f"a broken calibration ({reason_of(error)})", "a whole one"
        ) from None
    return calibration_of(record, arrays, source)
