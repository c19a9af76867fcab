"""Count the multiply-adds of a lowered model from its metadata and the patches that PyTorch kept on real images."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile
from exporter.errors import ArtefactError
from exporter.evaluation.survivors import patches_left
from exporter.schedule.macs import MacCount, mean_macs, schedule_macs
from exporter.tensor_names import count_name

__all__ = ["useful_macs"]

Array = np.ndarray[Any, Any]


def useful_macs(model: LoweredFile, reference: Mapping[str, Array]) -> MacCount:
    """Return the multiply-adds per image; under a-STAR, the mean of the useful ones over the reference's images.

    Raises:
        ArtefactError: The reference lacks the counts of the patches that a-STAR keeps.
    """
    spec, schedule = model.artefact.spec, model.artefact.schedule
    if not schedule.adaptive:
        return schedule_macs(spec, schedule)
    if not reference.keys() >= {count_name(layer) for layer in schedule.pruning_layers}:
        raise ArtefactError("the reference", "no survivors of a-STAR", f"those of {model.path.name}")
    return mean_macs(spec, patches_left(reference, spec.depth, spec.num_patches), schedule)
