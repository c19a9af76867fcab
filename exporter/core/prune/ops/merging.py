"""Token merging as operators that an exporter sees as one node each.

Choose a survivor for each patch and average the tokens; or pair them (ToMe, Bolya et al., ICLR 2023, section 3).
For pairs, patches are split into two sets (`core.schedule.counts`). Each of the first may join the patch of the
second that is most alike; those that are most alike to theirs do. Prefix tokens neither join nor are joined.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from exporter.core.prune.ops.factors import (
    WIDEST_GAP,
    directions,
    operator,
)
from exporter.core.prune.ops.selection import with_prefix_rows
from exporter.core.schedule.counts import joined_patches


@operator(
    "merge_into(Tensor key, Tensor keep, SymInt num_prefix_tokens) -> (Tensor, Tensor)"
)
def merge_into(
    key: Float[Tensor, "b h t c"], keep: Int[Tensor, "b k"], num_prefix_tokens: int
) -> tuple[Int[Tensor, "b n"], Float[Tensor, "b n"]]:
    """Return the survivor that each patch joins: the one with the largest cosine between their mean keys.

    Equal cosines go to the lower position. A survivor joins itself.

    Args:
        key: The keys of all tokens, prefix tokens first; their mean over heads is compared.
        keep: The survivors, ascending, counted from the first patch.
        num_prefix_tokens: Tokens before the first patch.

    Returns:
        The index of that survivor, from 0 to k − 1, and by how much its cosine exceeds the second largest:
        WIDEST_GAP for a survivor, and where there is no second.
    """
    cosine, itself = _survivors_alike(key, keep, num_prefix_tokens)
    into = cosine.masked_fill(itself, torch.inf).argmax(dim=-1)
    if keep.shape[1] == 1:
        return into, torch.full_like(cosine[..., 0], WIDEST_GAP)
    best = cosine.topk(2, dim=-1).values
    return into, (best[..., 0] - best[..., 1]).masked_fill(
        itself.any(dim=-1), WIDEST_GAP
    )


def nearest_survivor(
    key: Float[Tensor, "b h t c"], keep: Int[Tensor, "b k"], num_prefix_tokens: int
) -> Int[Tensor, "b n"]:
    """Return the first result of `merge_into` alone: what a forward pass that nobody checks needs."""
    cosine, itself = _survivors_alike(key, keep, num_prefix_tokens)
    return cosine.masked_fill(itself, torch.inf).argmax(dim=-1)


def _survivors_alike(
    key: Tensor, keep: Tensor, prefix: int
) -> tuple[Float[Tensor, "b n k"], Bool[Tensor, "b n k"]]:
    """Return the cosine of each patch and each survivor, and where they are the same."""
    patches = directions(key, prefix)
    survivors = patches.gather(1, keep.unsqueeze(-1).expand(-1, -1, key.shape[3]))
    places = torch.arange(patches.shape[1], device=keep.device).unsqueeze(1)
    return patches @ survivors.transpose(1, 2), keep.unsqueeze(1) == places


@merge_into.register_fake
def _(key: Tensor, keep: Tensor, num_prefix_tokens: int) -> tuple[Tensor, Tensor]:
    shape = (key.shape[0], key.shape[2] - num_prefix_tokens)
    return keep.new_empty(shape), key.new_empty(shape, dtype=torch.float32)


@operator(
    "merge_tokens(Tensor tokens, Tensor into, Tensor? sizes, SymInt kept, SymInt num_prefix_tokens)"
    " -> (Tensor, Tensor)"
)
def merge_tokens(
    tokens: Float[Tensor, "b t d"],
    into: Int[Tensor, "b n"],
    sizes: Float[Tensor, "b t"] | None,
    kept: int,
    num_prefix_tokens: int,
) -> tuple[Float[Tensor, "b s d"], Float[Tensor, "b s"]]:
    """Return the mean of the tokens that join each survivor, weighted by their sizes, and the sum of these sizes.

    Prefix tokens come first, unchanged. Each token gets the gradient times its weight.

    Args:
        tokens: Prefix tokens, then patches.
        into: The index of the survivor that each patch joins; each survivor is joined by at least one.
        sizes: How many patches each token stands for, 1 for a prefix token; None where all are 1.
        kept: Number of survivors.
        num_prefix_tokens: Tokens before the first patch.
    """
    batch, count, dim = tokens.shape
    rows, width = with_prefix_rows(into, num_prefix_tokens), num_prefix_tokens + kept
    own = torch.ones_like(rows, dtype=torch.float32) if sizes is None else sizes.float()
    merged_sizes = own.new_zeros(batch, width).scatter_add_(1, rows, own)
    # The share of a token that nobody joins is exactly 1.
    shares = own / merged_sizes.gather(1, rows)
    firsts = torch.arange(0, batch * width, width, device=into.device)
    survivors = (rows + firsts.unsqueeze(1)).flatten()
    weighted = tokens * shares.unsqueeze(-1).to(tokens.dtype)
    means = _sums(weighted.reshape(batch * count, dim), survivors, batch * width)
    return means.reshape(batch, width, dim), merged_sizes


def _sums(
    values: Float[Tensor, "n d"], place: Int[Tensor, " n"], places: int
) -> Float[Tensor, "places d"]:
    """Return the sum of the values of each place, added in their order."""
    sums = values.new_zeros(places, values.shape[1])
    if values.device.type == "cpu":
        return sums.index_add_(0, place, values)
    # A GPU adds by `index_add` in any order; this is slower on a CPU.
    return sums.index_put_((place,), values, accumulate=True)


@merge_tokens.register_fake
def _(
    tokens: Tensor,
    into: Tensor,
    sizes: Tensor | None,
    kept: int,
    num_prefix_tokens: int,
) -> tuple[Tensor, Tensor]:
    shape = (tokens.shape[0], num_prefix_tokens + kept)
    return tokens.new_empty((*shape, tokens.shape[2])), tokens.new_empty(
        shape, dtype=torch.float32
    )


# Score of the patches that others join: above that of any patch that may join one, however large both are.
PAIR_SCORE = 1e4


@operator(
    "pair_tokens(Tensor key, Tensor? sizes, SymInt kept, SymInt num_prefix_tokens)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
def pair_tokens(
    key: Float[Tensor, "b h t c"],
    sizes: Float[Tensor, "b t"] | None,
    kept: int,
    num_prefix_tokens: int,
) -> tuple[
    Int[Tensor, "b k"], Int[Tensor, "b n"], Float[Tensor, "b n"], Float[Tensor, "b n"]
]:
    """Return the survivors, the survivor that each patch joins, and how clear both decisions are.

    How alike two patches are is their cosine c; with sizes a and b it is (c − 1)·(a·b)^¼. Of pairs as unlike each
    other the larger ones then stay apart, since a merge moves more patches (as in Ward's method, 1963, whose weight
    grows faster); equal patches merge whatever their sizes.

    Of patches as alike the lower position stays, and the lower position is joined.

    Args:
        key: What is compared of all tokens, prefix tokens first: the mean over heads of their keys, or the tokens
            themselves, of one head.
        sizes: How many patches each token stands for; None: their cosine alone says how alike two are.
        kept: Number of survivors, at least one.
        num_prefix_tokens: Tokens before the first patch.

    Returns:
        The survivors, in ToMe's order: the patches of the first set that stay, ascending, then the second set.
        The index of the survivor that each patch joins, from 0 to kept − 1; a survivor joins itself.
        The score by which patches stay: how unlike they are to the patch that they would join, PAIR_SCORE for the
        second set.
        By how much they are more alike to it than to any other: WIDEST_GAP for a survivor, and where there is no
        other.
    """
    alike, sets = _pairs(key, sizes, kept, num_prefix_tokens)
    index, into, best = _joined(alike, sets, kept)
    next_best = best - WIDEST_GAP
    if alike.shape[2] > 1:
        next_best = alike.topk(2, dim=-1).values[..., 1]
    patches = into.shape[1]
    score = _spread(-best, sets, patches, PAIR_SCORE)
    gap = _spread(best - next_best, sets, patches, WIDEST_GAP)
    return index, into, score, gap.scatter(1, index, WIDEST_GAP)


def pairs(
    key: Float[Tensor, "b h t c"],
    sizes: Float[Tensor, "b t"] | None,
    kept: int,
    num_prefix_tokens: int,
) -> tuple[Int[Tensor, "b k"], Int[Tensor, "b n"]]:
    """Return the first two results of `pair_tokens` alone: what a forward pass that nobody checks needs."""
    index, into, _ = _joined(*_pairs(key, sizes, kept, num_prefix_tokens), kept)
    return index, into


class _Sets(NamedTuple):
    """The patches of both sets, ascending, as an index of a dimension of patches."""

    first: slice | Int[Tensor, " a"]
    second: slice


def _pairs(
    key: Tensor, sizes: Tensor | None, kept: int, prefix: int
) -> tuple[Float[Tensor, "b first second"], _Sets]:
    """Return how alike the patches of both sets are."""
    patches = directions(key, prefix)
    first, second = sets = _sets(patches.shape[1], kept, prefix, key.device)
    alike = patches[:, first].bmm(patches[:, second].mT)
    if sizes is not None:
        weight = sizes[:, prefix:].float().sqrt().sqrt()
        alike = (alike - 1.0) * weight[:, first, None] * weight[:, None, second]
    return alike, sets


def _sets(patches: int, kept: int, prefix: int, device: torch.device) -> _Sets:
    joined = joined_patches(patches, kept, prefix)
    start, step = joined.start, joined.step
    second = slice(start, patches, step)
    if step == 2:
        return _Sets(slice(1 - start, patches, 2), second)
    # Between two of the second set lie step − 1 of the first.
    place = torch.arange(patches - len(joined), device=device)
    before = (place + (step - 1 - start)) // (step - 1)
    return _Sets(place + before, second)


def _joined(
    alike: Tensor, sets: _Sets, kept: int
) -> tuple[Int[Tensor, "b k"], Int[Tensor, "b n"], Float[Tensor, "b first"]]:
    """Return the survivors, the survivor that each patch joins, and how alike the first set is to its partners."""
    best, partner = alike.max(dim=-1)
    batch, of_first, of_second = alike.shape
    patches, staying = of_first + of_second, kept - of_second
    # The least alike stay; of patches as alike the lower position.
    stay = best.sort(dim=1, stable=True).indices[:, :staying].sort(dim=1).values
    place = torch.arange(patches, device=alike.device)
    index = torch.cat(
        [place[sets.first].take(stay), place[sets.second].expand(batch, -1)], dim=1
    )
    into = index.new_empty(batch, patches)
    into[:, sets.first] = partner + staying
    return index, into.scatter_(1, index, place[:kept].expand(batch, -1)), best


def _spread(
    values: Shaped[Tensor, "b first"], sets: _Sets, patches: int, others: float
) -> Shaped[Tensor, "b n"]:
    """Return the values of the first set by patch; those of the second are `others`."""
    spread = values.new_full((values.shape[0], patches), others)
    spread[:, sets.first] = values
    return spread


@pair_tokens.register_fake
def _(
    key: Tensor, sizes: Tensor | None, kept: int, num_prefix_tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch = key.shape[0]
    patches = key.shape[2] - num_prefix_tokens
    index = key.new_empty((batch, kept), dtype=torch.int64)
    into = key.new_empty((batch, patches), dtype=torch.int64)
    score, gap = (
        key.new_empty((batch, patches), dtype=torch.float32) for _ in range(2)
    )
    return index, into, score, gap
