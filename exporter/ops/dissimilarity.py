"""How little each patch resembles the others, as an operator that an exporter sees as one node."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exporter.ops.likeness import directions
from exporter.ops.no_gradient import register_without_gradient

__all__ = ["dissimilarity"]


def dissimilarity(
    key: Float[Tensor, "b h t c"], live: Bool[Tensor, "b t"] | None, num_prefix_tokens: int
) -> Float[Tensor, "b n"]:
    """Return 1 − the mean cosine between a patch's mean key and those of all patches, in [0, 2], float32.

    The mean of the cosines is the product with the mean direction: O(patches · head_dim). Gradients do not pass.

    Args:
        key: The keys of all tokens, prefix tokens first; their mean over heads is compared.
        live: Which tokens are an image's own, None for all.
        num_prefix_tokens: Tokens before the first patch.
    """
    return torch.ops.star.dissimilarity(key, live, num_prefix_tokens)


@torch.library.custom_op("star::dissimilarity", mutates_args=())
def _dissimilarity(key: Tensor, live: Tensor | None, num_prefix_tokens: int) -> Tensor:
    patches = directions(key, num_prefix_tokens)
    if live is None:
        mean = patches.mean(dim=1, keepdim=True)
    else:
        own = live[:, num_prefix_tokens:].float()
        mean = ((own / own.sum(dim=1, keepdim=True)).unsqueeze(-1) * patches).sum(dim=1, keepdim=True)
    return 1.0 - (patches * mean).sum(dim=-1)


@_dissimilarity.register_fake
def _(key: Tensor, live: Tensor | None, num_prefix_tokens: int) -> Tensor:  # noqa: ARG001
    return key.new_empty((key.shape[0], key.shape[2] - num_prefix_tokens), dtype=torch.float32)


register_without_gradient(_dissimilarity, 3)
