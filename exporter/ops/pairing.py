"""Token merging in pairs (ToMe, Bolya et al., ICLR 2023, section 3): an operator that an exporter sees as one node.

Patches are split into two sets (`exporter.ops.pair_sets`). Each of the first may join the patch of the second whose
mean key resembles its own most; those that resemble theirs most do. Prefix tokens neither join nor are joined.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.ops.likeness import WIDEST_GAP, directions
from exporter.ops.no_gradient import register_without_gradient
from exporter.ops.pair_sets import joined_patches
from exporter.ops.selection import keep_top_k

__all__ = ["PAIR_SCORE", "pair_tokens"]

# Score of the patches that others join: above that of any patch that may join one, a negative cosine.
PAIR_SCORE = 2.0


def pair_tokens(
    key: Float[Tensor, "b h t c"], keep: int, num_prefix_tokens: int
) -> tuple[Int[Tensor, "b k"], Int[Tensor, "b n"], Float[Tensor, "b n"], Float[Tensor, "b n"]]:
    """Return the survivors, the survivor that each patch joins, and how clear both decisions are.

    Of equal cosines the lower position stays, and the lower position is joined. Gradients do not pass.

    Args:
        key: The keys of all tokens, prefix tokens first; their mean over heads is compared.
        keep: Number of survivors, at least one.
        num_prefix_tokens: Tokens before the first patch.

    Returns:
        The survivors, in ToMe's order: the patches of the first set that stay, ascending, then the second set.
        The index of the survivor that each patch joins, from 0 to keep − 1; a survivor joins itself.
        The score by which patches stay: the negative cosine to the patch that they would join, PAIR_SCORE for the
        second set.
        By how much this cosine exceeds the second largest: WIDEST_GAP for a survivor, and where there is no second.
    """
    return torch.ops.star.pair_tokens(key, keep, num_prefix_tokens)


@torch.library.custom_op("star::pair_tokens", mutates_args=())
def _pair_tokens(key: Tensor, keep: int, num_prefix_tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    patch_keys = directions(key, num_prefix_tokens)
    batch, patches = patch_keys.shape[:2]
    second = joined_patches(patches, keep, num_prefix_tokens)
    every = torch.arange(patches, device=key.device)
    joined = every[second.start :: second.step]
    joins = torch.ones_like(every, dtype=torch.bool).index_fill(0, joined, False)
    joining = every[joins]
    cosine = patch_keys[:, joining] @ patch_keys[:, joined].transpose(1, 2)
    best, staying = cosine.amax(dim=-1), keep - len(joined)
    stay = keep_top_k(-best, staying)
    index = torch.cat([joining[stay], joined.expand(batch, -1)], dim=1)
    # The place in the first set of each patch; entries of the second set are overwritten.
    by_patch = (joins.cumsum(0) - 1).clamp(min=0)
    into = cosine.argmax(dim=-1)[:, by_patch] + staying
    next_best = cosine.topk(2, dim=-1).values[..., 1] if len(joined) > 1 else best - WIDEST_GAP
    score, gap = -best[:, by_patch], (best - next_best)[:, by_patch]
    score[:, joined] = PAIR_SCORE
    return (
        index,
        into.scatter(1, index, every[:keep].expand(batch, -1)),
        score,
        gap.scatter(1, index, WIDEST_GAP),
    )


@_pair_tokens.register_fake
def _(key: Tensor, keep: int, num_prefix_tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, patches = key.shape[0], key.shape[2] - num_prefix_tokens
    index = key.new_empty((batch, keep), dtype=torch.int64)
    into = key.new_empty((batch, patches), dtype=torch.int64)
    score, gap = (key.new_empty((batch, patches), dtype=torch.float32) for _ in range(2))
    return index, into, score, gap


register_without_gradient(_pair_tokens, 3)
