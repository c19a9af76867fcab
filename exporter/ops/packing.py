"""Which rows stay when packed tokens lose patches, as an operator that an exporter sees as one node.

Packed tokens [total, dim] hold all images end to end; `slots` [b, t] says which row stands in each place of a grid.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["Packing", "pack_tokens"]


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
