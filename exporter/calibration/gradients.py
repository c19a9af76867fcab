"""Propagate the gradient of a logit back through a block, for all classes at once.

The steps that the classes can share (weights, attention, the activation's derivative) are written by hand; norms
and scales, which are cheap and of any kind, use autograd. Axes as in `trace`, with k for classes.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exporter.calibration.attention import QueryKeyValue
from exporter.calibration.trace import AttentionTrace, MlpTrace
from exporter.models.base import AttentionParts, MlpParts
from exporter.models.parts import Gate

__all__ = ["pull_back", "to_block_input", "to_context", "to_middle"]


def pull_back(
    function: Callable[[Tensor], Tensor],
    value: Float[Tensor, "b ..."],
    gradient: Float[Tensor, "b k ..."],
) -> Float[Tensor, "b k ..."]:
    """Return the gradient with respect to `value`, from that with respect to `function(value)`.

    `function` takes tensors [images, ...] and treats each image alone.
    """
    if isinstance(function, nn.Identity):
        return gradient
    with torch.enable_grad():
        images, classes = gradient.shape[:2]
        leaf = value.detach().unsqueeze(1).expand(-1, classes, *value.shape[1:]).flatten(0, 1)
        leaf = leaf.requires_grad_()
        (result,) = torch.autograd.grad(function(leaf), leaf, gradient.flatten(0, 1))
    return result.unflatten(0, (images, classes))


def to_middle(part: MlpParts, seen: MlpTrace, gradient: Float[Tensor, "b k t d"]) -> Float[Tensor, "b k t d"]:
    """Propagate from the output of a token-wise part to its input, for the MLP the tokens after attention."""
    branch = pull_back(part.out, seen.fc2_output, gradient)
    if not isinstance(part.fc2, nn.Identity):
        branch = branch @ part.fc2.weight
    branch = pull_back(part.hidden_norm, seen.activated, branch)
    if isinstance(part.act, Gate):
        branch = pull_back(part.act, seen.hidden, branch)
    else:
        branch *= _derivative(part.act, seen.hidden).unsqueeze(1)
    if not isinstance(part.fc1, nn.Identity):
        branch = branch @ part.fc1.weight
    return gradient + pull_back(part.norm, seen.tokens, branch)


def to_context(
    part: AttentionParts, seen: AttentionTrace, gradient: Float[Tensor, "b k t d"]
) -> Float[Tensor, "b k h t c"]:
    """Propagate from the tokens after attention to the heads' contexts, attention @ value."""
    branch = pull_back(part.out, seen.proj_output, gradient) @ part.proj.weight
    branch = pull_back(part.context_norm, seen.merged, branch)
    return branch.unflatten(-1, (part.num_heads, part.head_dim)).transpose(2, 3)


def to_block_input(
    part: AttentionParts,
    seen: AttentionTrace,
    middle: Float[Tensor, "b k t d"],
    inside: QueryKeyValue,
) -> Float[Tensor, "b k t d"]:
    """Propagate the gradients of the tokens after attention, and of query, key and value, to the block's input."""
    query, key, value = inside
    if part.rotary is not None:
        query = pull_back(part.rotary, seen.normed_query, query)
        key = pull_back(part.rotary, seen.normed_key, key)
    query = pull_back(part.q_norm, seen.raw_query, query)
    key = pull_back(part.k_norm, seen.raw_key, key)
    qkv = torch.stack((query, key, value), dim=2).permute(0, 1, 4, 2, 3, 5).flatten(3)
    return middle + pull_back(part.norm, seen.tokens, qkv @ part.qkv.weight)


def _derivative(activation: nn.Module, value: Tensor) -> Tensor:
    """Return the derivative of an element-wise function."""
    with torch.enable_grad():
        leaf = value.detach().requires_grad_()
        (derivative,) = torch.autograd.grad(activation(leaf).sum(), leaf)
    return derivative
