"""The variant NOSE, x → 2x in place of attention, without a block that doubles its tokens.

Later stages know blocks that add to their tokens, not blocks that scale them. A pre-norm network reads its tokens
through norms alone, so tokens that are all half as large give the same result if every later branch is halved and
eps of every later norm is divided by 4: norm(2x; eps) = norm(x; eps / 4). Powers of 2 make this exact.
"""

from collections.abc import Iterator

import torch
from torch import nn

from exporter.errors import DepthError
from exporter.models.base import PrunableViT

__all__ = ["halve_later_branches"]


@torch.no_grad()
def halve_later_branches(vit: PrunableViT, layer: int) -> None:
    """Change a network so that it computes what it would with the tokens doubled before the MLP of a layer.

    Args:
        vit: Its block `layer` has lost its attention; changed in place.
        layer: Counted from 1.

    Raises:
        DepthError: A later norm is no LayerNorm, or a later attention was replaced by the identity.
    """
    for norm in _later_norms(vit, layer):
        norm.eps /= 4
    for linear in _later_outputs(vit, layer):
        linear.weight.mul_(0.5)
        if linear.bias is not None:
            linear.bias.mul_(0.5)


def _later_norms(vit: PrunableViT, layer: int) -> list[nn.LayerNorm]:
    """Return every norm that reads tokens after the removed attention, each once."""
    parts = [part for block in vit.blocks[layer - 1 :] for part in (block.attention, *block.token_wise)]
    # `norm` names the final norm in all built-in families; a network without one is refused.
    found = [part.norm for part in parts if part is not None] + [getattr(vit.model, "norm", vit.model)]
    norms = []
    for norm in {id(each): each for each in found if isinstance(each, nn.Module)}.values():
        if not isinstance(norm, nn.LayerNorm):
            got = f"nose with a norm of the kind {type(norm).__name__}"
            raise DepthError("variant", got, "a LayerNorm wherever tokens are read", "use remove")
        norms.append(norm)
    return norms


def _later_outputs(vit: PrunableViT, layer: int) -> Iterator[nn.Linear]:
    for block in vit.blocks[layer - 1 :]:
        if block.attention is not None:
            yield block.attention.proj
        for part in block.token_wise:
            if isinstance(part.fc2, nn.Identity):
                raise DepthError("variant", "nose before an identity", "one variant in a model")
            yield part.fc2
