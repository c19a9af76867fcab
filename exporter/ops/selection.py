"""Top-k and the gathers that follow it, as operators that an exporter sees as one node each.

Order and ties: score descending, then lower position; survivors are in ascending position.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["keep_top_k", "take_rows", "take_tokens"]


def keep_top_k(score: Float[Tensor, "b n"], k: int) -> Int[Tensor, "b k"]:
    """Return the indices of the k largest scores of each row, ascending; equal scores go to the lower index."""
    return torch.ops.star.keep_top_k(score, k)


def take_tokens(
    tokens: Float[Tensor, "b t d"], keep: Int[Tensor, "b k"], num_prefix_tokens: int
) -> Float[Tensor, "b s d"]:
    """Gather the prefix tokens, then the patches `keep` (counted from the first patch)."""
    return torch.ops.star.take_tokens(tokens, keep, num_prefix_tokens)


def take_rows(packed: Float[Tensor, "total d"], slots: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
    """Gather the row of `packed` whose index is in each slot."""
    return torch.ops.star.take_rows(packed, slots)


@torch.library.custom_op("star::keep_top_k", mutates_args=())
def _keep_top_k(score: Tensor, k: int) -> Tensor:
    order = score.sort(dim=1, descending=True, stable=True).indices
    return order[:, :k].sort(dim=1).values


@_keep_top_k.register_fake
def _(score: Tensor, k: int) -> Tensor:
    return score.new_empty((score.shape[0], k), dtype=torch.int64)


@torch.library.custom_op("star::take_tokens", mutates_args=())
def _take_tokens(tokens: Tensor, keep: Tensor, num_prefix_tokens: int) -> Tensor:
    return tokens.gather(1, _rows(tokens, keep, num_prefix_tokens))


@_take_tokens.register_fake
def _(tokens: Tensor, keep: Tensor, num_prefix_tokens: int) -> Tensor:
    return tokens.new_empty((tokens.shape[0], num_prefix_tokens + keep.shape[1], tokens.shape[2]))


@torch.library.custom_op("star::take_rows", mutates_args=())
def _take_rows(packed: Tensor, slots: Tensor) -> Tensor:
    return packed[slots]


@_take_rows.register_fake
def _(packed: Tensor, slots: Tensor) -> Tensor:
    return packed.new_empty((*slots.shape, packed.shape[1]))


def _save_slots(
    ctx: Any,
    inputs: tuple[Tensor, Tensor],
    output: Tensor,  # noqa: ARG001
) -> None:
    packed, slots = inputs
    ctx.save_for_backward(slots)
    ctx.total = packed.shape[0]


def _add_back(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (slots,) = ctx.saved_tensors
    # A row may be in several slots: padding repeats an image's last survivor.
    zeros = grad.new_zeros((ctx.total, grad.shape[-1]))
    return zeros.index_add(0, slots.flatten(), grad.flatten(0, 1)), None


_take_rows.register_autograd(_add_back, setup_context=_save_slots)


def _save_rows(
    ctx: Any,
    inputs: tuple[Tensor, Tensor, int],
    output: Tensor,  # noqa: ARG001
) -> None:
    tokens, keep, num_prefix_tokens = inputs
    ctx.save_for_backward(keep)
    ctx.shape, ctx.num_prefix_tokens = tokens.shape, num_prefix_tokens


def _scatter_back(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (keep,) = ctx.saved_tensors
    zeros = grad.new_zeros(ctx.shape)
    # Padding repeats a row's first patch: its gradient is added, and does not replace the patch's own.
    return zeros.scatter_add(1, _rows(zeros, keep, ctx.num_prefix_tokens), grad), None, None


_take_tokens.register_autograd(_scatter_back, setup_context=_save_rows)


def _rows(tokens: Tensor, keep: Tensor, num_prefix_tokens: int) -> Tensor:
    prefix = torch.arange(num_prefix_tokens, device=keep.device).expand(keep.shape[0], -1)
    rows = torch.cat([prefix, keep + num_prefix_tokens], dim=1)
    return rows.unsqueeze(-1).expand(-1, -1, tokens.shape[2])
