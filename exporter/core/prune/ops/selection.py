"""Top-k and CdfRetain, the gathers that follow them, and the rows of packed tokens that stay.

Each is an operator that an exporter sees as one node. Order and ties: score descending, then lower position;
survivors are in ascending position. `core.prune.ops.cdf_reference` defines CdfRetain; also with one count for a
batch, as in the authors' code, for comparison with published numbers: it depends on the other images, and no model
is exported with it. Packed tokens [total, dim] hold all images end to end; `slots` [b, t] says which row stands in
each place of a grid.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exporter.core.prune.ops.cdf_reference import EXACT_SUM
from exporter.core.prune.ops.factors import operator
from exporter.core.schedule.counts import ROUNDING_GUARD


@operator("keep_top_k(Tensor score, SymInt k) -> Tensor")
def keep_top_k(score: Float[Tensor, "b n"], k: int) -> Int[Tensor, "b k"]:
    """Return the indices of the k largest scores of each row, ascending; equal scores go to the lower index."""
    order = score.sort(dim=1, descending=True, stable=True).indices
    return order[:, :k].sort(dim=1).values


@keep_top_k.register_fake
def _(score: Tensor, k: int) -> Tensor:
    return score.new_empty((score.shape[0], k), dtype=torch.int64)


@operator("take_tokens(Tensor tokens, Tensor keep, SymInt num_prefix_tokens) -> Tensor")
def take_tokens(
    tokens: Float[Tensor, "b t d"], keep: Int[Tensor, "b k"], num_prefix_tokens: int
) -> Float[Tensor, "b s d"]:
    """Gather the prefix tokens, then the patches `keep` (counted from the first patch)."""
    return tokens.gather(1, _rows(tokens, keep, num_prefix_tokens))


@take_tokens.register_fake
def _(tokens: Tensor, keep: Tensor, num_prefix_tokens: int) -> Tensor:
    return tokens.new_empty(
        (tokens.shape[0], num_prefix_tokens + keep.shape[1], tokens.shape[2])
    )


@operator("take_rows(Tensor packed, Tensor slots) -> Tensor")
def take_rows(
    packed: Float[Tensor, "total d"], slots: Int[Tensor, "b t"]
) -> Float[Tensor, "b t d"]:
    """Gather the row of `packed` whose index is in each slot."""
    rows = packed.index_select(0, slots.flatten())
    return rows.unflatten(0, tuple(slots.shape))


@take_rows.register_fake
def _(packed: Tensor, slots: Tensor) -> Tensor:
    return packed.new_empty((*slots.shape, packed.shape[1]))


def with_prefix_rows(index: Int[Tensor, "b k"], prefix: int) -> Int[Tensor, "b s"]:
    """Return the rows of the prefix tokens, then those of the patches with these indices."""
    rows = torch.arange(prefix, device=index.device).expand(index.shape[0], -1)
    return torch.cat([rows, index + prefix], dim=1)


def _rows(tokens: Tensor, keep: Tensor, num_prefix_tokens: int) -> Tensor:
    rows = with_prefix_rows(keep, num_prefix_tokens)
    return rows.unsqueeze(-1).expand(-1, -1, tokens.shape[2])


@operator(
    "cdf_retain(Tensor score, Tensor valid_count, float mass) -> (Tensor, Tensor, Tensor)"
)
def cdf_retain(
    score: Float[Tensor, "b n"], valid_count: Int[Tensor, " b"], mass: float
) -> tuple[Int[Tensor, "b m"], Int[Tensor, " b"], Int[Tensor, ""]]:
    """Return each row's survivors, ascending and padded with zeros; their number; the largest of these numbers.

    Args:
        score: Importance of each patch, float32.
        valid_count: Patches of each image; entries after them are not read.
        mass: The share of the row's sum to reach, in (0, 1].
    """
    survivors, keep_count = _survivors(score, valid_count, mass)
    width = keep_count.max()
    return _padded(survivors, int(width)), keep_count, width


@cdf_retain.register_fake
def _(score: Tensor, valid_count: Tensor, mass: float) -> tuple[Tensor, Tensor, Tensor]:
    # It may be 1, and the graph is right for it. But told so, torch.export would ask whether the width broadcasts.
    width = torch.library.get_ctx().new_dynamic_size(min=2)
    keep_index = score.new_empty((score.shape[0], width), dtype=torch.int64)
    return (
        keep_index,
        torch.empty_like(valid_count),
        score.new_empty((), dtype=torch.int64),
    )


@operator(
    "cdf_retain_padded(Tensor score, Tensor valid_count, float mass, SymInt width) -> (Tensor, Tensor)"
)
def cdf_retain_padded(
    score: Float[Tensor, "b n"], valid_count: Int[Tensor, " b"], mass: float, width: int
) -> tuple[Int[Tensor, "b width"], Int[Tensor, " b"]]:
    """Return the same, padded to a width known beforehand that no count exceeds: STAR's count."""
    survivors, keep_count = _survivors(score, valid_count, mass)
    return _padded(survivors, width), keep_count


@cdf_retain_padded.register_fake
def _(
    score: Tensor, valid_count: Tensor, mass: float, width: int
) -> tuple[Tensor, Tensor]:
    return score.new_empty(
        (score.shape[0], width), dtype=torch.int64
    ), torch.empty_like(valid_count)


def _survivors(
    score: Tensor, valid_count: Tensor, mass: float
) -> tuple[Tensor, Tensor]:
    """Return survivors in ascending position [b, n], dropped ones as the number n; and the counts [b]."""
    patches, valid = score.shape[1], valid_count.unsqueeze(1)
    slots = torch.arange(patches, device=score.device)
    usable = torch.where((slots < valid) & (score > 0), score, 0.0).clamp(
        max=torch.finfo(torch.float32).max
    )
    ranked, order = usable.sort(dim=1, descending=True, stable=True)
    largest = torch.div(EXACT_SUM, valid, rounding_mode="floor").float()
    top = ranked[:, :1].clamp_min(torch.finfo(torch.float32).tiny)
    units = torch.round(ranked / top * largest)
    before = units.cumsum(1) - units
    total = units.sum(1, keepdim=True)
    # In the contract's dtype: Python's floats would round later than a runtime does.
    share = torch.tensor(mass, dtype=torch.float32, device=score.device)
    threshold = torch.where(share < 1.0, (share * total).clamp_min(1.0), torch.inf)
    most = (share * valid.float() - float(ROUNDING_GUARD)).clamp_min(1.0)
    stays = (before < threshold) & (slots < most)
    return torch.where(stays, order, patches).sort(dim=1).values, stays.sum(1)


def _padded(survivors: Tensor, width: int) -> Tensor:
    padded = torch.where(survivors < survivors.shape[1], survivors, 0)
    return padded[:, :width].contiguous()


@operator(
    "pack_tokens(Tensor slots, Tensor index, Tensor count, SymInt num_prefix_tokens)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
def pack_tokens(
    slots: Int[Tensor, "b t"],
    index: Int[Tensor, "b k"],
    count: Int[Tensor, " b"],
    num_prefix_tokens: int,
) -> tuple[
    Int[Tensor, " total"],
    Bool[Tensor, "b s"],
    Int[Tensor, "b s"],
    Int[Tensor, " total"],
]:
    """Pack the prefix tokens and survivors of each image.

    Args:
        slots: Where the tokens stand before.
        index: Survivors among the patches of each image, then padding.
        count: Survivors of each image.
        num_prefix_tokens: Tokens before the first patch.

    Returns:
        The rows of the packed tokens to take, first image first.
        The places of the new grid that are no padding. Padding is the image's own last survivor again, which a
        maximum over patches may meet.
        Which of the rows taken stands in each place of the new grid.
        The way back, into the grid laid flat.
    """
    prefix, tokens = num_prefix_tokens, (count + num_prefix_tokens).unsqueeze(1)
    columns = torch.arange(prefix + index.shape[1], device=slots.device)
    live = columns < tokens
    places = live.flatten().nonzero().squeeze(1)
    taken = torch.cat([slots[:, :prefix], slots[:, prefix:].gather(1, index)], dim=1)
    after = tokens.cumsum(0) - tokens + torch.minimum(columns, tokens - 1)
    return taken.flatten().index_select(0, places), live, after, places


@pack_tokens.register_fake
def _(
    slots: Tensor, index: Tensor, count: Tensor, num_prefix_tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = torch.library.get_ctx().new_dynamic_size(min=1)
    grid = (slots.shape[0], num_prefix_tokens + index.shape[1])
    live = slots.new_empty(grid, dtype=torch.bool)
    return slots.new_empty(total), live, slots.new_empty(grid), slots.new_empty(total)
