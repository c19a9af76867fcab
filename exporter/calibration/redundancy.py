"""How alike an image's patches are at a layer: the average cosine similarity (ACS, STAR Eq. 5)."""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

__all__ = ["average_cosine_similarity"]


def average_cosine_similarity(
    tokens: Float[Tensor, "b t d"], num_prefix_tokens: int
) -> Float64[Tensor, " b"]:
    """Mean cosine over all pairs of different patches of each image, in [-1, 1]; prefix tokens are left out.

    Unit rows u make it O(patches x dim): the sum over pairs is (|sum of u|^2 - patches) / 2. The paper divides by
    another number of pairs, which changes nothing: rates depend on ACS only through differences over differences.
    A row of zeros has cosine 0 with every other. A single patch has no pair, and gets 0.

    Args:
        tokens: The output of one block of the unpruned model.
        num_prefix_tokens: Tokens before the patches.
    """
    patches = tokens[:, num_prefix_tokens:].to(torch.float64)
    count = patches.shape[1]
    if count < 2:
        return patches.new_zeros(len(patches))
    # Scaled first by the largest entry, so that the squares of huge or tiny rows stay finite and above 0.
    largest = patches.abs().amax(-1, keepdim=True)
    scaled = patches / largest.masked_fill(largest == 0, 1)
    norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    unit = scaled / norm.clamp(min=1)
    rows = (norm.squeeze(-1) > 0).sum(-1)
    return (unit.sum(1).square().sum(-1) - rows) / (count * (count - 1))
