"""Top-k, the gathers that follow it, and the rows of packed tokens that stay.

Each is an operator that an exporter sees as one node. Order and ties: score descending, then lower position;
survivors are in ascending position. Packed tokens [total, dim] hold all images end to end; `slots` [b, t] says
which row stands in each place of a grid.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Packing", "keep_top_k", "pack_tokens", "take_rows", "take_tokens"]


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


class Packing(NamedTuple):
    """The rows that stay, first image first, and where they go.

    `rows` are the rows of the packed tokens to take, `slots` say which of the rows taken stands in each place of
    the new grid, `places` are the way back, into the grid laid flat; `live` marks the places that are no padding.
    Padding is the image's own last survivor again, which a maximum over patches may meet.
    """

    rows: Int[Tensor, " total"]
    live: Bool[Tensor, "b s"]
    slots: Int[Tensor, "b s"]
    places: Int[Tensor, " total"]


def pack_tokens(
    slots: Int[Tensor, "b t"], index: Int[Tensor, "b k"], count: Int[Tensor, " b"], num_prefix_tokens: int
) -> Packing:
    """Pack the prefix tokens and survivors of each image.

    Args:
        slots: Where the tokens stand before.
        index: Survivors among the patches of each image, then padding.
        count: Survivors of each image.
        num_prefix_tokens: Tokens before the first patch.
    """
    return Packing(*torch.ops.star.pack_tokens(slots, index, count, num_prefix_tokens))


@torch.library.custom_op("star::pack_tokens", mutates_args=())
def _pack_tokens(
    slots: Tensor, index: Tensor, count: Tensor, num_prefix_tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    prefix, tokens = num_prefix_tokens, (count + num_prefix_tokens).unsqueeze(1)
    columns = torch.arange(prefix + index.shape[1], device=slots.device)
    live = columns < tokens
    places = live.flatten().nonzero().squeeze(1)
    taken = torch.cat([slots[:, :prefix], slots[:, prefix:].gather(1, index)], dim=1)
    after = tokens.cumsum(0) - tokens + torch.minimum(columns, tokens - 1)
    return taken.flatten().index_select(0, places), live, after, places


@_pack_tokens.register_fake
def _(
    slots: Tensor,
    index: Tensor,
    count: Tensor,  # noqa: ARG001
    num_prefix_tokens: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = torch.library.get_ctx().new_dynamic_size(min=1)
    grid = (slots.shape[0], num_prefix_tokens + index.shape[1])
    live = slots.new_empty(grid, dtype=torch.bool)
    return slots.new_empty(total), live, slots.new_empty(grid), slots.new_empty(total)
