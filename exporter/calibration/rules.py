"""The propagation rules of relevance (alpha = 1, beta = 0), one pure function each.

They are those of Transformer-Explainability (Chefer et al., CVPR 2021), written from its formulas. Relevance has
the axes [batch, classes, ...]; what the model computed has a classes axis of 1, so that everything that does not
depend on the class is done once. Every sum is taken per image and class: a batch cannot mix its images.
Norms, activations, softmax and dropout pass relevance on unchanged and have no function here. Nor has LayerScale,
whose sign is a part of the weight before it.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["add", "clone", "gate", "guarded_inverse", "linear", "matmul", "output_unit", "rotation"]

# Added to every denominator; a denominator of exactly 0 gives 0. Published values depend on it where sums cancel.
EPS = 1e-9


def guarded_inverse(denominator: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """1 / (denominator + 1e-9), and 0 where the denominator is 0."""
    shifted = denominator + EPS
    inverse = torch.where(shifted == 0, EPS, shifted).reciprocal_()
    return inverse.masked_fill_(denominator == 0, 0)


def clone(relevance: Float[Tensor, "b k ..."], value: Float[Tensor, "b 1 ..."]) -> Float[Tensor, "b k ..."]:
    """Relevance of a value that was used twice, from the sum of its uses' relevance: 0 where the value is 0."""
    return relevance * (value * guarded_inverse(value))


def add(
    relevance: Float[Tensor, "b k t d"], left: Float[Tensor, "b 1 t d"], right: Float[Tensor, "b 1 t d"]
) -> tuple[Float[Tensor, "b k t d"], Float[Tensor, "b k t d"]]:
    """Split relevance over the two terms of a sum.

    Entry by entry in proportion to the terms; then each part is rescaled as a whole, to a share of the total
    that is its absolute sum over both absolute sums. Without that, terms of opposite sign blow up.
    """
    ratio = relevance * guarded_inverse(left + right)
    left_part, right_part = left * ratio, right * ratio
    left_sum, right_sum = left_part.sum((-2, -1), keepdim=True), right_part.sum((-2, -1), keepdim=True)
    unit = relevance.sum((-2, -1), keepdim=True) * guarded_inverse(left_sum.abs() + right_sum.abs())
    left_part *= left_sum.abs() * unit * guarded_inverse(left_sum)
    right_part *= right_sum.abs() * unit * guarded_inverse(right_sum)
    return left_part, right_part


def linear(
    relevance: Float[Tensor, "b k t o"], value: Float[Tensor, "b 1 t i"], weight: Float[Tensor, "o i"]
) -> Float[Tensor, "b k t i"]:
    """z+ rule of a linear layer: relevance goes where input and weight have the same sign; the bias has no part."""
    positive, negative = weight.clamp(min=0), weight.clamp(max=0)
    agreeing = value.clamp(min=0) @ positive.T + value.clamp(max=0) @ negative.T
    ratio = relevance * guarded_inverse(agreeing)
    # An input is either positive or negative, so one of the two products counts for it.
    part = torch.where(value > 0, ratio @ positive, ratio @ negative)
    return part.mul_(value)


def output_unit(
    value: Float[Tensor, "b 1 i"], weight: Float[Tensor, "b k i"], relevance: Float[Tensor, "b k"]
) -> Float[Tensor, "b k i"]:
    """The z+ rule of `linear` for a single output unit each, whose weight row is given."""
    agreeing = (value * weight).clamp(min=0)
    return agreeing * (relevance * guarded_inverse(agreeing.sum(-1))).unsqueeze(-1)


def matmul(
    relevance: Float[Tensor, "b k h m n"],
    left: Float[Tensor, "b 1 h m c"],
    right: Float[Tensor, "b 1 h c n"],
    product: Float[Tensor, "b 1 h m n"],
) -> tuple[Float[Tensor, "b k h m c"], Float[Tensor, "b k h c n"]]:
    """Relevance of both factors of `product = left @ right`, half to each; it keeps its sign."""
    ratio = relevance * (0.5 * guarded_inverse(product))
    left_part = (ratio @ right.transpose(-2, -1)).mul_(left)
    right_part = (left.transpose(-2, -1) @ ratio).mul_(right)
    return left_part, right_part


def gate(relevance: Float[Tensor, "b k t m"]) -> Float[Tensor, "b k t two_m"]:
    """Relevance of both factors of a gated MLP's product, one after the other: half to each, as in `matmul`.

    The derivative of a·b by a, times a, is a·b itself: the rule of a product needs no values.
    """
    return torch.cat((relevance, relevance), dim=-1).mul_(0.5)


def rotation(
    relevance: Float[Tensor, "b k h t c"],
    value: Float[Tensor, "b 1 h t c"],
    turned: Float[Tensor, "b 1 h t c"],
    pull_back: Callable[[Tensor], Tensor],
) -> Float[Tensor, "b k h t c"]:
    """Relevance of `value` from that of `turned`, which a rotation of pairs of channels made of it.

    Entry by entry in proportion to what each channel adds, with its sign. Behind `matmul` this is the rule of the
    product of query and key with the rotation as a part of it; nothing is lost or added.

    Args:
        relevance: Of `turned`.
        value: Before the rotation.
        turned: After it.
        pull_back: From a gradient with regard to `turned` to the one with regard to `value`.
    """
    return value * pull_back(relevance * guarded_inverse(turned))
