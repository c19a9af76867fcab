"""The class token's attention logits, as an operator that an exporter sees as one node."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["class_row"]


def class_row(
    query: Float[Tensor, "b h t c"], key: Float[Tensor, "b h t c"], scale: float
) -> Float[Tensor, "b h t"]:
    """Return scale · q_class · keyᵀ of each head: O(tokens · dim), in addition to the fused attention."""
    return torch.ops.star.class_row(query, key, scale)


@torch.library.custom_op("star::class_row", mutates_args=())
def _class_row(query: Tensor, key: Tensor, scale: float) -> Tensor:
    return (query[:, :, :1] * scale @ key.transpose(-2, -1)).squeeze(2)


@_class_row.register_fake
def _(query: Tensor, key: Tensor, scale: float) -> Tensor:  # noqa: ARG001
    return key.new_empty(key.shape[:3])


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:  # noqa: ARG001
    query, key, ctx.scale = inputs
    ctx.save_for_backward(query, key)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    query, key = ctx.saved_tensors
    scaled = (ctx.scale * grad).unsqueeze(2)
    grad_query = torch.zeros_like(query)
    grad_query[:, :, :1] = scaled @ key
    return grad_query, scaled.transpose(-2, -1) * query[:, :, :1], None


_class_row.register_autograd(_backward, setup_context=_save)
