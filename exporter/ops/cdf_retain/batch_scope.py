"""a-STAR as in the authors' code: one count for a whole batch, which depends on its other images.

For comparison with published numbers; no model is exported with it.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exporter.ops.keep_count import keep_count

__all__ = ["batch_count"]


def batch_count(score: Float[Tensor, "b n"], mass: float) -> int:
    """Count the patches to keep per image: where the batch's scores, image by image, reach `mass` of their sum.

    Each image's scores are in descending order, the images concatenated. The index at which the running sum
    reaches the mass, counted from 0 and divided by the number of images, is the count. With many images it
    tends to mass · n, whatever the scores. At least one, at most k(mass, n).
    """
    images, patches = score.shape
    share = score.sort(dim=1, descending=True, stable=True).values.double().flatten().cumsum(0)
    place = int(torch.searchsorted(share, mass * share[-1]))
    return min(max(place // images, 1), keep_count(mass, patches))
