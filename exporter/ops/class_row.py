"""The attention logits of the class tokens, as an operator that an exporter sees as one node."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["class_row"]


def class_row(
    query: Float[Tensor, "b h t c"], key: Float[Tensor, "b h t c"], scale: float, num_class_tokens: int = 1
) -> Float[Tensor, "b rows t"]:
    """Return scale · q · keyᵀ of the first `num_class_tokens` tokens, O(tokens · dim) beside the fused attention.

    There is a row for each head and class token, those of one head side by side.
    """
    return torch.ops.star.class_row(query, key, scale, num_class_tokens)


@torch.library.custom_op("star::class_row", mutates_args=())
def _class_row(query: Tensor, key: Tensor, scale: float, num_class_tokens: int) -> Tensor:
    return (query[:, :, :num_class_tokens] * scale @ key.transpose(-2, -1)).flatten(1, 2)


@_class_row.register_fake
def _(query: Tensor, key: Tensor, scale: float, num_class_tokens: int) -> Tensor:  # noqa: ARG001
    batch, heads, tokens, _ = key.shape
    return key.new_empty(batch, heads * num_class_tokens, tokens)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float, int], output: Tensor) -> None:  # noqa: ARG001
    query, key, ctx.scale, ctx.num_class_tokens = inputs
    ctx.save_for_backward(query, key)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
    query, key = ctx.saved_tensors
    scaled = (ctx.scale * grad).unflatten(1, (-1, ctx.num_class_tokens))
    grad_query = torch.zeros_like(query)
    grad_query[:, :, : ctx.num_class_tokens] = scaled @ key
    return grad_query, scaled.transpose(-2, -1) @ query[:, :, : ctx.num_class_tokens], None, None


_class_row.register_autograd(_backward, setup_context=_save)
