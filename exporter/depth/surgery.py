"""Apply a depth plan to a ViT: the result is an ordinary model for every later stage."""

import copy
import hashlib

from torch import nn

from exporter.depth.activations import merge, remove_activation
from exporter.depth.blocks import MlpBlock, exchange
from exporter.depth.nose import halve_later_branches
from exporter.depth.plan import DepthPlan
from exporter.errors import DepthError
from exporter.models.base import AttentionParts, BlockParts, MlpParts, PrunableViT
from exporter.models.spec import with_blocks
from exporter.models.weights import weights_sha256
from exporter.vocabulary import AttentionVariant

__all__ = ["apply_plan"]


def apply_plan(vit: PrunableViT, plan: DepthPlan, *, unmerged: bool = False) -> PrunableViT:
    """Return a copy of a ViT without the units of a plan; the ViT itself does not change.

    Units that are gone already stay gone. So a model can be pruned further, and one that was trained in its
    unmerged form is merged by the same plan. The same plan on the same network gives the same state-dict keys.

    A block without attention becomes an `MlpBlock`. An MLP without an activation becomes one linear layer where
    that saves MACs; the affine parameters of its norm and the scale of its branch are folded into it where they
    are modules of the block. Dropout inside a merged MLP goes.

    Args:
        vit: Any adapted ViT, also on the meta device.
        plan: The units.
        unmerged: Whether linear layers stay apart, the form for training: it has more parameters to learn with.

    Raises:
        DepthError: The plan names a layer beyond the depth, an activation that cannot go (a gated MLP, an MLP with
            a hidden norm or with active dropout), or a variant that does not suit the network; or the unit is
            no module of the network.
        ModelError: No attention would be left.
    """
    plan.check_fits(vit.spec.depth)
    pruned = copy.deepcopy(vit)
    for layer in plan.attention:
        _remove_attention(pruned, layer, plan.variant)
    for layer in plan.activation:
        _put(pruned, layer, remove_activation(pruned.blocks[layer - 1], layer))
        if not unmerged:
            _put(pruned, layer, merge(pruned.blocks[layer - 1], layer))
    pruned.spec = with_blocks(pruned.spec, pruned.blocks)
    pruned.weights_sha256 = _digest(pruned)
    return pruned


def _remove_attention(vit: PrunableViT, layer: int, variant: AttentionVariant) -> None:
    block = vit.blocks[layer - 1]
    if block.attention is None:
        return
    if block.mlp is None:
        raise DepthError(f"layer {layer}", "a block of attention alone", "a block that also has an MLP")
    stand_in = _without_linears(block.attention) if variant == AttentionVariant.IDENTITY else None
    whole = MlpBlock(block.mlp, stand_in).train(block.whole.training)
    if not exchange(vit.model, block.whole, whole):
        raise DepthError(f"layer {layer}", "a block that is no module of the network", "one that is")
    _put(vit, layer, BlockParts(whole, None, block.mlp, stand_in))
    if variant == AttentionVariant.NOSE:
        halve_later_branches(vit, layer)


def _without_linears(attention: AttentionParts) -> MlpParts:
    """Return what the variant identity leaves of an attention, x + out(norm x): token by token, as an MLP is."""
    nothing = nn.Identity()
    return MlpParts(
        norm=attention.norm,
        fc1=nothing,
        act=nothing,
        hidden_norm=nothing,
        fc2=nothing,
        whole=nothing,
        out=attention.out,
    )


def _put(vit: PrunableViT, layer: int, block: BlockParts) -> None:
    vit.blocks = [*vit.blocks[: layer - 1], block, *vit.blocks[layer:]]


def _digest(vit: PrunableViT) -> str:
    """Return the digest of the weights, and of what they do not show: MLPs of two layers without an activation."""
    weights = weights_sha256(vit.model)
    apart = [
        layer
        for layer, block in enumerate(vit.blocks, start=1)
        if block.mlp is not None
        and isinstance(block.mlp.act, nn.Identity)
        and not isinstance(block.mlp.fc1, nn.Identity)
    ]
    if not weights or not apart:
        return weights
    return hashlib.sha256(f"{weights} no activation in {apart}".encode()).hexdigest()
