"""The batch-wide a-STAR of the authors' code, whose counts depend on who shares a batch: the tables print it."""

import torch
from jaxtyping import Float
from torch import Tensor

from exporter.core.prune.ops.selection import keep_top_k
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.tokens import Decision, Tokens
from exporter.core.schedule.counts import keep_count

# How the tables name it; its schedule is one of a-STAR.
BATCH_WIDE = "a-star-batch"


class BatchWide(PrunedViT):
    """A pruned ViT of which every image of a batch keeps the same number of patches."""

    def _kept(self, layer: int, score: Tensor, tokens: Tokens) -> Decision:  # noqa: ARG002
        index = keep_top_k(
            score, batch_count(score.exp(), self.schedule.rates[layer - 1])
        )
        # Every image has the same count; it is said, since a schedule of a-STAR does not tell it.
        return Decision(index, torch.full_like(index[:, 0], index.shape[1]))


def batch_count(score: Float[Tensor, "b n"], mass: float) -> int:
    """Count the patches to keep per image: where the batch's scores, image by image, reach `mass` of their sum.

    Each image's scores are in descending order, the images concatenated. The index at which the running sum
    reaches the mass, counted from 0 and divided by the number of images, is the count. With many images it
    tends to mass · n, whatever the scores. At least one, at most k(mass, n).
    """
    images, patches = score.shape
    share = (
        score.sort(dim=1, descending=True, stable=True)
        .values.double()
        .flatten()
        .cumsum(0)
    )
    place = int(torch.searchsorted(share, mass * share[-1]))
    return min(max(place // images, 1), keep_count(mass, patches))
