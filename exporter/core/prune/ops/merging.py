"""Token merging as operators that an exporter sees as one node each.

Choose a survivor for each patch and average the tokens; or pair them (ToMe, Bolya et al., ICLR 2023, section 3).
For pairs, patches are split into two sets (`core.schedule.counts`). Each of the first may join the patch of the
second that is most alike; those that are most alike to theirs do. Prefix tokens neither join nor are joined.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.core.prune.ops.factors import (
    WIDEST_GAP,
    directions,
    operator,
    without_gradient,
)
from exporter.core.prune.ops.selection import keep_top_k, with_prefix_rows
from exporter.core.schedule.counts import joined_patches


@operator(
    "merge_into(Tensor key, Tensor keep, SymInt num_prefix_tokens) -> (Tensor, Tensor)"
)
def merge_into(
    key: Float[Tensor, "b h t c"], keep: Int[Tensor, "b k"], num_prefix_tokens: int
) -> tuple[Int[Tensor, "b n"], Float[Tensor, "b n"]]:
    """Return the survivor that each patch joins: the one with the largest cosine between their mean keys.

    Equal cosines go to the lower position. A survivor joins itself. Gradients do not pass.

    Args:
        key: The keys of all tokens, prefix tokens first; their mean over heads is compared.
        keep: The survivors, ascending, counted from the first patch.
        num_prefix_tokens: Tokens before the first patch.

    Returns:
        The index of that survivor, from 0 to k − 1, and by how much its cosine exceeds the second largest:
        WIDEST_GAP for a survivor, and where there is no second.
    """
    patches = directions(key, num_prefix_tokens)
    survivors = patches.gather(1, keep.unsqueeze(-1).expand(-1, -1, key.shape[3]))
    cosine = patches @ survivors.transpose(1, 2)
    places = torch.arange(patches.shape[1], device=keep.device).unsqueeze(1)
    itself = keep.unsqueeze(1) == places
    into = cosine.masked_fill(itself, torch.inf).argmax(dim=-1)
    if keep.shape[1] == 1:
        return into, torch.full_like(cosine[..., 0], WIDEST_GAP)
    best = cosine.topk(2, dim=-1).values
    return into, (best[..., 0] - best[..., 1]).masked_fill(
        itself.any(dim=-1), WIDEST_GAP
    )


@merge_into.register_fake
def _(key: Tensor, keep: Tensor, num_prefix_tokens: int) -> tuple[Tensor, Tensor]:
    shape = (key.shape[0], key.shape[2] - num_prefix_tokens)
    return keep.new_empty(shape), key.new_empty(shape, dtype=torch.float32)


without_gradient(merge_into)


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

    Prefix tokens come first, unchanged. Each token gets the gradient times its weight; sizes get none.

    Args:
        tokens: Prefix tokens, then patches.
        into: The index of the survivor that each patch joins; each survivor is joined by at least one.
        sizes: How many patches each token stands for, 1 for a prefix token; None where all are 1.
        kept: Number of survivors.
        num_prefix_tokens: Tokens before the first patch.
    """
    weights, merged_sizes = _weights(into, sizes, kept, num_prefix_tokens)
    return weights.to(tokens.dtype) @ tokens, merged_sizes


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


def _weights(
    into: Tensor, sizes: Tensor | None, kept: int, prefix: int
) -> tuple[Tensor, Tensor]:
    """Return the share of each token in each merged one, [batch, prefix + kept, tokens], and the merged sizes."""
    survivors = torch.arange(prefix + kept, device=into.device)
    joins = with_prefix_rows(into, prefix).unsqueeze(1) == survivors.unsqueeze(1)
    weights = joins.float() if sizes is None else joins * sizes.float().unsqueeze(1)
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total, total.squeeze(-1)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, into, sizes, ctx.kept, ctx.prefix = inputs
    ctx.save_for_backward(into, sizes)
    ctx.mark_non_differentiable(output[1])


def _backward(
    ctx: Any, grad: Tensor, _: Tensor
) -> tuple[Tensor, None, None, None, None]:
    into, sizes = ctx.saved_tensors
    weights, _ = _weights(into, sizes, ctx.kept, ctx.prefix)
    return weights.to(grad.dtype).transpose(1, 2) @ grad, None, None, None, None


merge_tokens.register_autograd(_backward, setup_context=_save)


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

    Of patches as alike the lower position stays, and the lower position is joined. Gradients do not pass.

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
    patch_keys = directions(key, num_prefix_tokens)
    batch, patches = patch_keys.shape[:2]
    second = joined_patches(patches, kept, num_prefix_tokens)
    places = torch.arange(patches, device=key.device)
    joined = places[second.start :: second.step]
    joins = torch.ones_like(places, dtype=torch.bool).index_fill(0, joined, False)
    joining = places[joins]
    alike = patch_keys[:, joining] @ patch_keys[:, joined].transpose(1, 2)
    if sizes is not None:
        weight = sizes[:, num_prefix_tokens:].float().sqrt().sqrt()
        rows, columns = weight[:, joining, None], weight[:, None, joined]
        alike = (alike - 1.0) * rows * columns
    best = alike.amax(dim=-1)
    staying = kept - len(joined)
    stay = keep_top_k(-best, staying)
    index = torch.cat([joining[stay], joined.expand(batch, -1)], dim=1)
    # The place in the first set of each patch; entries of the second set are overwritten.
    by_patch = (joins.cumsum(0) - 1).clamp(min=0)
    into = alike.argmax(dim=-1)[:, by_patch] + staying
    next_best = best - WIDEST_GAP
    if len(joined) > 1:
        next_best = alike.topk(2, dim=-1).values[..., 1]
    score = -best[:, by_patch]
    gap = (best - next_best)[:, by_patch]
    score[:, joined] = PAIR_SCORE
    into = into.scatter(1, index, places[:kept].expand(batch, -1))
    return index, into, score, gap.scatter(1, index, WIDEST_GAP)


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


without_gradient(pair_tokens)
