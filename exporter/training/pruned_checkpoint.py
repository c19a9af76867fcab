"""What prunes the weights of a checkpoint, in its metadata: a schedule and, where scores need it, a calibration."""

import json
from pathlib import Path

import numpy as np

from exporter.calibration.record import ARRAYS, Calibration, Pruning, calibration_of
from exporter.core.base.canonical_json import from_json
from exporter.core.base.errors import as_written
from exporter.core.base.records import Schedule
from exporter.models.identity import read_metadata

SCHEDULE, CALIBRATION = "schedule", "calibration"
# What fine-tuning measured (`exporter.measure.loss.Tuned`).
TUNED = "tuned"


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


def read_pruning(path: Path | None) -> Pruning | None:
    """Read what prunes a checkpoint's weights; None where there is no file, or it is an ordinary checkpoint.

    Raises:
        ArtefactError: The metadata is broken.
    """
    metadata = {} if path is None else read_metadata(path)
    if path is None or SCHEDULE not in metadata:
        return None
    with as_written(path, "a checkpoint"):
        schedule = from_json(Schedule, metadata[SCHEDULE], source=str(path))
        lists = json.loads(metadata.get(CALIBRATION, "null"))
        if lists is None:
            return Pruning(schedule)
        record = json.dumps(lists.pop("record"))
        arrays = {
            name: np.array(numbers, np.float64)
            for name, numbers in lists.items()
            if numbers is not None
        }
        return Pruning(schedule, calibration_of(record, arrays))
