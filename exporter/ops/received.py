"""The attention that each token receives, as an operator that an exporter sees as one node."""

import torch
from jaxtyping import Float
from torch import Tensor

from exporter.ops.no_gradient import register_without_gradient

__all__ = ["received"]


def received(
    query: Float[Tensor, "b h t c"],
    key: Float[Tensor, "b h t c"],
    key_bias: Float[Tensor, "b t"] | None,
    scale: float,
    stride: int = 1,
) -> Float[Tensor, "b t"]:
    """Return the column means of softmax(scale · q · keyᵀ + bias), over heads and queries, float32.

    One step, from uniform weights, of the weighted page rank of Zero-TPrune (Wang et al., CVPR 2024). It is
    computed beside the fused attention, O(tokens² / stride · dim). Gradients do not pass.

    Args:
        query: Of all tokens.
        key: Of all tokens.
        key_bias: Added to the logits of each key. A token of −∞ is padding, which is neither key nor query.
        scale: Of the logits.
        stride: Only every so many-th token is a query, from the first on.
    """
    return torch.ops.star.received(query, key, key_bias, scale, stride)


@torch.library.custom_op("star::received", mutates_args=())
def _received(query: Tensor, key: Tensor, key_bias: Tensor | None, scale: float, stride: int) -> Tensor:
    logits = query[:, :, ::stride].float() * scale @ key.float().transpose(-2, -1)
    if key_bias is None:
        return logits.softmax(dim=-1).mean(dim=(1, 2))
    attention = (logits + key_bias[:, None, None]).softmax(dim=-1).mean(dim=1)
    asking = (key_bias[:, ::stride] > -torch.inf).float()
    return (attention * (asking / asking.sum(dim=1, keepdim=True)).unsqueeze(-1)).sum(dim=1)


@_received.register_fake
def _(query: Tensor, key: Tensor, key_bias: Tensor | None, scale: float, stride: int) -> Tensor:  # noqa: ARG001
    return key.new_empty((key.shape[0], key.shape[2]), dtype=torch.float32)


register_without_gradient(_received, 5)
