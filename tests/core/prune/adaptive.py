"""a-STAR of small models, in every layout, and images that keep different numbers of patches."""

from collections.abc import Sequence

import numpy as np
import torch

from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT, Trace
from exporter.core.prune.tokens import Decision
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT

RATES = {1: 0.8, 2: 0.7, 4: 0.5}
LAYOUTS = ("shrinking", "packed", "padded")


def inter_of(vit: PrunableViT, seed: int = 0) -> np.ndarray:
    """Inter-layer scores that differ from patch to patch."""
    return np.random.default_rng(seed).uniform(
        0.1, 1.0, (vit.spec.depth, vit.spec.num_patches)
    )


def make_adaptive(
    vit: PrunableViT, layout: str = "shrinking", scorer: str = "fused"
) -> PrunedViT:
    """a-STAR of a model, with inter-layer scores that differ from patch to patch."""
    schedule = manual_schedule(
        vit.spec, RATES, resolve(Prune(scorer, alpha=0.5, method=Method.A_STAR))
    )
    return PrunedViT(vit, schedule, inter_of(vit), layout).eval()


def decided(kept: Sequence[Sequence[int]]) -> Decision:
    """What a layer decides that keeps these patches of each image: padding names the first patch again."""
    counts = [len(row) for row in kept]
    index = [[*row, *[0] * (max(counts) - len(row))] for row in kept]
    return Decision(torch.tensor(index), torch.tensor(counts))


def kept_by(trace: Trace, image: int) -> list[list[int]]:
    """The survivors of one image, layer by layer."""
    survivors = []
    for kept in trace.decisions.values():
        assert kept.count is not None
        survivors.append(kept.index[image, : int(kept.count[image])].tolist())
    return survivors
