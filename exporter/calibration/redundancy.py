"""Average cosine similarity (ACS, STAR Eq. 5) of an image's patches at a layer."""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

__all__ = ["average_cosine_similarity"]


def average_cosine_similarity(
    tokens: Float[Tensor, "b t d"], num_prefix_tokens: int
) -> Float64[Tensor, " b"]:
    """Compute the mean cosine over all pairs of different patches of each image, in [-1, 1], without prefix tokens.

    Unit rows u make it O(patches x dim): the sum over pairs is (|sum of u|^2 - patches) / 2. The paper divides by
    another number of pairs, which changes nothing: rates depend on ACS only through ratios of differences. Its sum
    includes the class token, which does change ACS; the authors' code, followed here, leaves it out.
    A row of zeros has cosine 0 with every other. A single patch has no pair, and gets 0.

    Args:
        tokens: The output of one block of the unpruned model.
        num_prefix_tokens: Tokens before the patches.
    """
    patches = tokens[:, num_prefix_tokens:].to(torch.float64)
    count = patches.shape[1]
    if count < 2:
        return patches.new_zeros(len(patches))
    length = torch.linalg.vector_norm(patches, dim=-1, keepdim=True)
    rows = (length > 0).sum((1, 2))
    scale = torch.where(length > 0, length, torch.inf).reciprocal_()
    # One product instead of unit rows: this runs after every block, and must cost little compared with it.
    unit_sum = scale.transpose(1, 2) @ patches
    return (unit_sum.square().sum((1, 2)) - rows) / (count * (count - 1))
