"""Propagate relevance ("cam") and the gradient of a logit back through a block, for all classes at once.

The steps that the classes can share (weights, attention, the activation's derivative) are written by hand; norms
and scales, which are cheap and of any kind, use autograd. Axes as in `trace`, with k for classes.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exporter.calibration import rules
from exporter.calibration.attention import QueryKeyValue
from exporter.calibration.trace import AttentionTrace, MlpTrace
from exporter.models.base import AttentionParts, MlpParts
from exporter.models.parts import Gate, Rotary


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


def cam_to_middle(part: MlpParts, seen: MlpTrace, cam: Float[Tensor, "b k t d"]) -> Float[Tensor, "b k t d"]:
    """Propagate from the output of a token-wise part to its input, for the MLP the tokens after attention."""
    middle = seen.tokens.unsqueeze(1)
    skip, branch = rules.add(cam, middle, seen.branch.unsqueeze(1))
    if not isinstance(part.fc2, nn.Identity):
        branch = rules.linear(branch, seen.fc2_input.unsqueeze(1), _as_added(part.fc2.weight, part.out))
    if isinstance(part.act, Gate):
        branch = rules.gate(branch)
    if not isinstance(part.fc1, nn.Identity):
        branch = rules.linear(branch, seen.normed.unsqueeze(1), part.fc1.weight)
    return rules.clone(skip.add_(branch), middle)


def cam_to_context(
    part: AttentionParts, seen: AttentionTrace, cam: Float[Tensor, "b k t d"]
) -> tuple[Float[Tensor, "b k t d"], Float[Tensor, "b k h t c"]]:
    """Propagate from the tokens after attention to the skip connection and the heads' contexts."""
    skip, branch = rules.add(cam, seen.tokens.unsqueeze(1), seen.branch.unsqueeze(1))
    branch = rules.linear(branch, seen.proj_input.unsqueeze(1), _as_added(part.proj.weight, part.out))
    return skip, branch.unflatten(-1, (part.num_heads, part.head_dim)).transpose(2, 3)


def cam_to_block_input(
    part: AttentionParts,
    seen: AttentionTrace,
    skip: Float[Tensor, "b k t d"],
    inside: QueryKeyValue,
) -> Float[Tensor, "b k t d"]:
    """Propagate from the skip connection, and from query, key and value inside attention, to the block's input."""
    query, key, value = inside
    if part.rotary is not None:
        query = _unturned(part.rotary, query, seen.normed_query, seen.query)
        key = _unturned(part.rotary, key, seen.normed_key, seen.key)
    qkv = torch.stack((query, key, value), dim=2).permute(0, 1, 4, 2, 3, 5).flatten(3)
    branch = rules.linear(qkv, seen.normed.unsqueeze(1), part.qkv.weight)
    return rules.clone(skip + branch, seen.tokens.unsqueeze(1))


def _as_added(weight: Float[Tensor, "o i"], out: nn.Module) -> Float[Tensor, "o i"]:
    """Return a linear layer's weight with the sign with which each of its outputs is added.

    LayerScale may be negative: the z+ rule then counts the other half of the products as agreeing. Its magnitude
    cancels in that rule.
    """
    sign = out(weight.new_ones(1, 1, weight.shape[0])).sign().reshape(-1, 1)
    return weight * sign


def _unturned(
    rotary: Rotary, cam: Float[Tensor, "b k h t c"], value: Float[Tensor, "b h t c"], turned: Tensor
) -> Float[Tensor, "b k h t c"]:
    return rules.rotation(
        cam, value.unsqueeze(1), turned.unsqueeze(1), lambda gradient: pull_back(rotary, value, gradient)
    )


def gradient_to_middle(
    part: MlpParts, seen: MlpTrace, gradient: Float[Tensor, "b k t d"]
) -> Float[Tensor, "b k t d"]:
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


def gradient_to_context(
    part: AttentionParts, seen: AttentionTrace, gradient: Float[Tensor, "b k t d"]
) -> Float[Tensor, "b k h t c"]:
    """Propagate from the tokens after attention to the heads' contexts, attention @ value."""
    branch = pull_back(part.out, seen.proj_output, gradient) @ part.proj.weight
    branch = pull_back(part.context_norm, seen.merged, branch)
    return branch.unflatten(-1, (part.num_heads, part.head_dim)).transpose(2, 3)


def gradient_to_block_input(
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
