"""How many patches a-STAR leaves of real images, and the multiply-adds that follow."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.macs import executed_macs, pruned_macs

__all__ = ["LayerUse", "PatchUse", "patch_use", "patches_left"]

Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LayerUse:
    """Patches that a 1-based layer leaves, over images; STAR would leave `star` of each."""

    layer: int
    least: int
    median: float
    p95: float
    most: int
    star: int


@dataclass(frozen=True)
class PatchUse:
    """What was left of `images` images, and the mean multiply-adds of one.

    `useful_macs` count each image's own survivors, `executed_macs` also what a batch of `batch` images pads.
    """

    images: int
    batch: int
    layers: tuple[LayerUse, ...]
    useful_macs: float
    executed_macs: float


def patches_left(pruned: PrunedViT, batches: Iterable[Tensor]) -> Array:
    """Patches that are left after each layer, [images, depth] int64."""
    schedule, parts = pruned.schedule, []
    with torch.inference_mode():
        for images in batches:
            left = torch.full((len(images),), schedule.num_patches, dtype=torch.int64)
            trace, columns = pruned.trace(images.to(pruned.vit.device)), []
            for layer in range(pruned.vit.spec.depth):
                if layer in trace.kept:
                    kept = trace.kept[layer]
                    left = torch.full_like(left, kept.index.shape[1]) if kept.count is None else kept.count
                columns.append(left.cpu())
            parts.append(torch.stack(columns, dim=1).numpy())
    return np.concatenate(parts)


def patch_use(pruned: PrunedViT, images: Tensor, batch: int) -> PatchUse:
    """The use of patches over [n, 3, H, W] preprocessed images, in batches of `batch`."""
    spec, star = pruned.vit.spec, pruned.schedule.keep
    left = patches_left(pruned, images.split(batch))
    layers = tuple(
        LayerUse(
            layer=layer + 1,
            least=int(left[:, layer].min()),
            median=float(np.median(left[:, layer])),
            p95=float(np.percentile(left[:, layer], 95)),
            most=int(left[:, layer].max()),
            star=star[layer],
        )
        for layer in pruned.schedule.pruning_layers
    )
    groups = [left[start : start + batch] for start in range(0, len(left), batch)]
    executed = sum(executed_macs(spec, group, pruned.flavour, star) * len(group) for group in groups)
    useful = np.mean([pruned_macs(spec, counts.tolist()).total for counts in left])
    return PatchUse(len(left), batch, layers, float(useful), executed / len(left))
