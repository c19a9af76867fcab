"""CdfRetain as a PyTorch operator that an exporter can see whole; `reference` beside it says what it does."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.ops.cdf_retain.reference import EXACT_SUM
from exporter.ops.keep_count import ROUNDING_GUARD

__all__ = ["cdf_retain", "cdf_retain_padded"]


def cdf_retain(
    score: Float[Tensor, "b n"], valid_count: Int[Tensor, " b"], mass: float
) -> tuple[Int[Tensor, "b m"], Int[Tensor, " b"], Int[Tensor, ""]]:
    """Survivors of each row, ascending and padded with zeros; how many they are; the largest of these counts.

    Args:
        score: Importance of each patch, float32.
        valid_count: Patches that each image has; what stands behind them is not read.
        mass: The share of the row's sum to reach, in (0, 1].
    """
    return torch.ops.star.cdf_retain(score, valid_count, mass)


def cdf_retain_padded(
    score: Float[Tensor, "b n"], valid_count: Int[Tensor, " b"], mass: float, width: int
) -> tuple[Int[Tensor, "b width"], Int[Tensor, " b"]]:
    """The same, padded to a width that no count exceeds and that is known beforehand: STAR's count."""
    return torch.ops.star.cdf_retain_padded(score, valid_count, mass, width)


@torch.library.custom_op("star::cdf_retain", mutates_args=())
def _cdf_retain(score: Tensor, valid_count: Tensor, mass: float) -> tuple[Tensor, Tensor, Tensor]:
    survivors, keep_count = _survivors(score, valid_count, mass)
    width = keep_count.max()
    return _padded(survivors, int(width)), keep_count, width


@_cdf_retain.register_fake
def _(score: Tensor, valid_count: Tensor, mass: float) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    width = torch.library.get_ctx().new_dynamic_size(min=1)
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
    """Survivors in ascending position, those that go as `n`, [b, n]; and the counts [b]."""
    patches, valid = score.shape[1], valid_count.unsqueeze(1)
    slots = torch.arange(patches, device=score.device)
    usable = torch.where((slots < valid) & (score > 0), score, 0.0).clamp(max=torch.finfo(torch.float32).max)
    ranked, order = usable.sort(dim=1, descending=True, stable=True)
    largest = torch.div(EXACT_SUM, valid, rounding_mode="floor").float()
    units = torch.floor(ranked / ranked[:, :1].clamp_min(torch.finfo(torch.float32).tiny) * largest)
    before, total = units.cumsum(1) - units, units.sum(1, keepdim=True)
    # In the dtype of the contract: Python's floats would round later than a runtime does.
    share = torch.tensor(mass, dtype=torch.float32, device=score.device)
    threshold = torch.where(share < 1.0, (share * total).clamp_min(1.0), torch.inf)
    most = (share * valid.float() - float(ROUNDING_GUARD)).clamp_min(1.0)
    kept = (before < threshold) & (slots < most)
    return torch.where(kept, order, patches).sort(dim=1).values, kept.sum(1)


def _padded(survivors: Tensor, width: int) -> Tensor:
    return torch.where(survivors < survivors.shape[1], survivors, 0)[:, :width].contiguous()
