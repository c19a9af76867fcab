"""A pruned model's weights on disk, with what prunes them: a .safetensors that needs no other file.

Its tensors are the network's own, so that anything that reads such weights can load them; the metadata names the
network (`exporter.models.identity`) and holds the schedule and, where scores need one, the calibration.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save

from exporter.calibration.record import ARRAYS, Calibration, calibration_of
from exporter.depth.checkpoint import DEPTH, Depth
from exporter.errors import ArtefactError, reason_of
from exporter.files import written_beside
from exporter.formats.canonical_json import from_json
from exporter.models.identity import Identity, read_metadata, to_metadata
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule

SCHEDULE, CALIBRATION = "schedule", "calibration"
# What fine-tuning measured (`exporter.evaluation.loss.Tuned`).
TUNED = "tuned"


@dataclass(frozen=True, eq=False)
class Pruning:
    """What prunes the weights of a checkpoint: they were trained with it."""

    schedule: Schedule
    calibration: Calibration | None


def save_checkpoint(
    pruned: PrunedViT,
    identity: Identity | None,
    calibration: Calibration | None,
    path: Path,
    depth: Depth | None = None,
    **more: object,
) -> None:
    """Write the weights of a pruned model with its schedule; the same model gives the same bytes.

    Args:
        pruned: Gives weights and schedule.
        identity: How to build the network; None where that is not known.
        calibration: Kept if the schedule uses inter-layer scores.
        path: Ends in .safetensors.
        depth: Units that the network lacks, None if it is whole.
        more: Further records for the metadata, by name.
    """
    told = {
        **({} if depth is None else {DEPTH: depth}),
        **more,
        **pruning_records(pruned.schedule, calibration),
    }
    state = {key: value.detach().cpu().contiguous() for key, value in pruned.model.state_dict().items()}
    with written_beside(path) as partial:
        partial.write_bytes(save(state, to_metadata(identity, **told)))


def pruning_records(schedule: Schedule, calibration: Calibration | None) -> dict[str, object]:
    """Return the records that say what prunes weights, by their names in the metadata."""
    told: dict[str, object] = {SCHEDULE: schedule}
    if calibration is not None and schedule.inter_sha256:
        # Numbers in JSON are read back bit for bit.
        arrays = ((name, getattr(calibration, name)) for name in ARRAYS)
        lists = {name: None if each is None else each.tolist() for name, each in arrays}
        told[CALIBRATION] = {"record": calibration.record, **lists}
    return told


def read_pruning(path: Path) -> Pruning | None:
    """Read what prunes a checkpoint's weights; None where the file is an ordinary checkpoint.

    Raises:
        ArtefactError: The metadata is broken.
    """
    metadata = read_metadata(path)
    if SCHEDULE not in metadata:
        return None
    schedule = from_json(Schedule, metadata[SCHEDULE], source=str(path))
    told = metadata.get(CALIBRATION)
    calibration = None if told is None else _calibration_of(told, str(path))
    if schedule.inter_sha256 and (calibration is None or calibration.inter_sha256 != schedule.inter_sha256):
        got = "inter-layer scores other than those of its schedule"
        raise ArtefactError(str(path), got, "a checkpoint of star-export finetune")
    return Pruning(schedule, calibration)


def _calibration_of(text: str, source: str) -> Calibration:
    try:
        told: dict[str, Any] = json.loads(text)
        record = json.dumps(told.pop("record"))
        arrays = {name: np.array(each, np.float64) for name, each in told.items() if each is not None}
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(source, f"a broken calibration ({reason_of(error)})", "a whole one") from None
    return calibration_of(record, arrays, source)
