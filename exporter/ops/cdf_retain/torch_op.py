"""CdfRetain as a PyTorch operator that an exporter sees as one node; the module `reference` defines it.

Also with one count for a whole batch, as in the authors' code, for comparison with published numbers: it depends on
the other images, and no model is exported with it.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.ops.cdf_retain.reference import EXACT_SUM
from exporter.ops.counts import ROUNDING_GUARD, keep_count

__all__ = ["batch_count", "cdf_retain", "cdf_retain_padded"]


def cdf_retain(
    score: Float[Tensor, "b n"], valid_count: Int[Tensor, " b"], mass: float
) -> tuple[Int[Tensor, "b m"], Int[Tensor, " b"], Int[Tensor, ""]]:
    """Return each row's survivors, ascending and padded with zeros; their number; the largest of these numbers.

    Args:
        score: Importance of each patch, float32.
        valid_count: Patches of each image; entries after them are not read.
        mass: The share of the row's sum to reach, in (0, 1].
    """
    return torch.ops.star.cdf_retain(score, valid_count, mass)


def cdf_retain_padded(
    score: Float[Tensor, "b n"], valid_count: Int[Tensor, " b"], mass: float, width: int
) -> tuple[Int[Tensor, "b width"], Int[Tensor, " b"]]:
    """Return the same, padded to a width known beforehand that no count exceeds: STAR's count."""
    return torch.ops.star.cdf_retain_padded(score, valid_count, mass, width)


@torch.library.custom_op("star::cdf_retain", mutates_args=())
def _cdf_retain(score: Tensor, valid_count: Tensor, mass: float) -> tuple[Tensor, Tensor, Tensor]:
    survivors, keep_count = _survivors(score, valid_count, mass)
    width = keep_count.max()
    return _padded(survivors, int(width)), keep_count, width


@_cdf_retain.register_fake
def _(score: Tensor, valid_count: Tensor, mass: float) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    # It may be 1, and the graph is right for it. But told so, torch.export would ask whether the width broadcasts.
    width = torch.library.get_ctx().new_dynamic_size(min=2)
    keep_index = score.new_empty((score.shape[0], width), dtype=torch.int64)
    return keep_index, torch.empty_like(valid_count), score.new_empty((), dtype=torch.int64)


@torch.library.custom_op("star::cdf_retain_padded", mutates_args=())
def _cdf_retain_padded(score: Tensor, valid_count: Tensor, mass: float, width: int) -> tuple[Tensor, Tensor]:
    survivors, keep_count = _survivors(score, valid_count, mass)
    return _padded(survivors, width), keep_count


@_cdf_retain_padded.register_fake
def _(score: Tensor, valid_count: Tensor, mass: float, width: int) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return score.new_empty((score.shape[0], width), dtype=torch.int64), torch.empty_like(valid_count)


def _survivors(score: Tensor, valid_count: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """Return survivors in ascending position [b, n], dropped ones as the number n; and the counts [b]."""
    patches, valid = score.shape[1], valid_count.unsqueeze(1)
    slots = torch.arange(patches, device=score.device)
    usable = torch.where((slots < valid) & (score > 0), score, 0.0).clamp(max=torch.finfo(torch.float32).max)
    ranked, order = usable.sort(dim=1, descending=True, stable=True)
    largest = torch.div(EXACT_SUM, valid, rounding_mode="floor").float()
    units = torch.round(ranked / ranked[:, :1].clamp_min(torch.finfo(torch.float32).tiny) * largest)
    before, total = units.cumsum(1) - units, units.sum(1, keepdim=True)
    # In the contract's dtype: Python's floats would round later than a runtime does.
    share = torch.tensor(mass, dtype=torch.float32, device=score.device)
    threshold = torch.where(share < 1.0, (share * total).clamp_min(1.0), torch.inf)
    most = (share * valid.float() - float(ROUNDING_GUARD)).clamp_min(1.0)
    kept = (before < threshold) & (slots < most)
    return torch.where(kept, order, patches).sort(dim=1).values, kept.sum(1)


def _padded(survivors: Tensor, width: int) -> Tensor:
    return torch.where(survivors < survivors.shape[1], survivors, 0)[:, :width].contiguous()


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
