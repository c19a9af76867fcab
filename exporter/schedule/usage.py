"""Count how many patches a-STAR keeps of real images, and the resulting multiply-adds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import executed_macs, mean_macs, pruned_macs

__all__ = ["LayerUse", "PatchUse", "patch_use"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LayerUse:
    """Number of patches that a 1-based layer keeps, over images; STAR would keep `star` of each."""

    layer: int
    least: int
    median: float
    p95: float
    most: int
    star: int


@dataclass(frozen=True)
class PatchUse:
    """Patches kept of `images` images, and the mean multiply-adds per image.

    `useful_macs` count the survivors of each image and include `scoring_macs`; `most_macs` are those of the image
    that takes the most. `executed_macs` also count the padding in batches of `batch` images.
    """

    images: int
    batch: int
    layout: str
    layers: tuple[LayerUse, ...]
    useful_macs: int
    scoring_macs: int
    most_macs: int
    executed_macs: float


def patch_use(spec: ModelSpec, schedule: Schedule, left: Array, layout: str, batch: int) -> PatchUse:
    """Return the use of patches; `left` [images, depth] is the number of patches of each image after each layer."""
    layers = tuple(
        LayerUse(
            layer=layer,
            least=int(left[:, layer - 1].min()),
            median=float(np.median(left[:, layer - 1])),
            p95=float(np.percentile(left[:, layer - 1], 95)),
            most=int(left[:, layer - 1].max()),
            star=schedule.keep[layer - 1],
        )
        for layer in schedule.pruning_layers
    )
    groups = [left[start : start + batch] for start in range(0, len(left), batch)]
    executed = sum(
        executed_macs(spec, group, layout, schedule.keep, schedule) * len(group) for group in groups
    )
    useful = mean_macs(spec, left, schedule)
    most = max(pruned_macs(spec, each, scored=schedule).total for each in left.tolist())
    return PatchUse(
        images=len(left),
        batch=batch,
        layout=layout,
        layers=layers,
        useful_macs=useful.total,
        scoring_macs=useful.scoring,
        most_macs=most,
        executed_macs=executed / len(left),
    )
