"""The propagation rules of relevance (alpha = 1, beta = 0), one pure function each.

They implement the formulas of Transformer-Explainability (Chefer et al., CVPR 2021). Relevance has the axes
[batch, classes, ...]; the model's values have a classes axis of 1, so that work that does not depend on the class
is done once. Every sum is per image and class: a batch cannot mix its images.
Norms, activations, softmax and dropout pass relevance on unchanged and have no function here. LayerScale has none
either; its sign is part of the weight before it.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

# What is propagated, relevance or gradients, for each of k classes; other axes as in `trace`.
TokenSignals: TypeAlias = Float[Tensor, "b k t d"]
HeadSignals: TypeAlias = Float[Tensor, "b k h t c"]
# A row of attention that is rolled out, and the classes themselves.
Rows: TypeAlias = Float[Tensor, "b k t"]
Classes: TypeAlias = Int[Tensor, "b k"]

# Added to every denominator; a denominator of exactly 0 gives 0. Published values depend on it where sums cancel.
EPS = 1e-9


def guarded_inverse(denominator: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """1 / (denominator + 1e-9), and 0 where the denominator is 0."""
    shifted = denominator + EPS
    inverse = torch.where(shifted == 0, EPS, shifted).reciprocal_()
    return inverse.masked_fill_(denominator == 0, 0)


def clone(
    relevance: Float[Tensor, "b k ..."], value: Float[Tensor, "b 1 ..."]
) -> Float[Tensor, "b k ..."]:
    """Return the relevance of a value used twice, from the sum of its uses' relevance: 0 where the value is 0."""
    return relevance * (value * guarded_inverse(value))


def add(
    relevance: TokenSignals,
    left: Float[Tensor, "b 1 t d"],
    right: Float[Tensor, "b 1 t d"],
) -> tuple[TokenSignals, TokenSignals]:
    """Split relevance over the two terms of a sum.

    Each element is split in proportion to the terms; then each part is rescaled as a whole, to a share of the total
    that is its absolute sum over both absolute sums. Without rescaling, terms of opposite sign diverge.
    """
    ratio = relevance * guarded_inverse(left + right)
    left_part = left * ratio
    right_part = right * ratio
    left_sum = left_part.sum((-2, -1), keepdim=True)
    right_sum = right_part.sum((-2, -1), keepdim=True)
    total = relevance.sum((-2, -1), keepdim=True)
    unit = total * guarded_inverse(left_sum.abs() + right_sum.abs())
    left_part *= left_sum.abs() * unit * guarded_inverse(left_sum)
    right_part *= right_sum.abs() * unit * guarded_inverse(right_sum)
    return left_part, right_part


def linear(
    relevance: Float[Tensor, "b k t o"],
    value: Float[Tensor, "b 1 t i"],
    weight: Float[Tensor, "o i"],
) -> Float[Tensor, "b k t i"]:
    """Apply the z+ rule to a linear layer: relevance goes to inputs of the weight's sign; the bias gets none."""
    positive = weight.clamp(min=0)
    negative = weight.clamp(max=0)
    agreeing = value.clamp(min=0) @ positive.T + value.clamp(max=0) @ negative.T
    ratio = relevance * guarded_inverse(agreeing)
    # An input is either positive or negative, so one of the two products counts for it.
    part = torch.where(value > 0, ratio @ positive, ratio @ negative)
    return part.mul_(value)


def output_unit(
    value: Float[Tensor, "b 1 i"],
    weight: Float[Tensor, "b k i"],
    relevance: Float[Tensor, "b k"],
) -> Float[Tensor, "b k i"]:
    """Apply the z+ rule of `linear` to a single output unit per class, given its weight row."""
    agreeing = (value * weight).clamp(min=0)
    return agreeing * (relevance * guarded_inverse(agreeing.sum(-1))).unsqueeze(-1)


def mean(
    relevance: Float[Tensor, "b k d"], value: Float[Tensor, "b 1 n d"]
) -> Float[Tensor, "b k n d"]:
    """Split the relevance of a mean over n values, channel by channel, in proportion to those of the mean's sign.

    The z+ rule of `linear` would lose that of a negative channel: it would look for positive values.
    """
    agreeing = (value * value.sum(-2, keepdim=True).sign()).clamp(min=0)
    return agreeing * (relevance * guarded_inverse(agreeing.sum(-2))).unsqueeze(-2)


def half_share(product: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Return the factor of a matrix product's relevance in the rule that gives half to each factor, with its sign.

    With ratio = relevance * half_share(left @ right), that of left is (ratio @ rightᵀ) * left, and that of right is
    (leftᵀ @ ratio) * right.
    """
    return guarded_inverse(product).mul_(0.5)


def gate(relevance: Float[Tensor, "b k t m"]) -> Float[Tensor, "b k t two_m"]:
    """Return the relevance of both factors of a gated MLP's product, concatenated: half to each.

    The derivative of a·b by a, times a, is a·b itself: the rule of `half_share` needs no values.
    """
    return torch.cat((relevance, relevance), dim=-1).mul_(0.5)


def rotation(
    relevance: HeadSignals,
    value: Float[Tensor, "b 1 h t c"],
    turned: Float[Tensor, "b 1 h t c"],
    pull_back: Callable[[Tensor], Tensor],
) -> HeadSignals:
    """Return the relevance of `value` from that of `turned`, its rotation by pairs of channels.

    Relevance is split element by element in proportion to each channel's contribution, with its sign. After
    `half_share` this is the rule of the product of query and key including the rotation; the total does not
    change. `pull_back` maps a gradient with respect to `turned` to the one with respect to `value`.
    """
    return value * pull_back(relevance * guarded_inverse(turned))
