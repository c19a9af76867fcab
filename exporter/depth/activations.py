"""Remove the activation of a block's MLP, and merge the linear layers left; both change the given network."""

from dataclasses import replace

from torch import nn

from exporter.depth.blocks import exchange, pieces
from exporter.depth.merge import Affine, saves_macs, without_affine
from exporter.errors import DepthError
from exporter.models.base import BlockParts, MlpParts
from exporter.models.parts import Gate, scale_of

__all__ = ["merge", "remove_activation"]


def remove_activation(block: BlockParts, layer: int) -> BlockParts:
    """Replace the activation inside the block by the identity; return the block's parts.

    Args:
        block: Its modules.
        layer: Its number, counted from 1, for messages.

    Raises:
        DepthError: The MLP is missing, cannot be merged, or its activation is no module of it.
    """
    mlp = block.mlp
    reason = why_not(mlp)
    if mlp is None or reason:
        raise DepthError(
            f"activation of layer {layer}", reason, "two linear layers and an activation between"
        )
    if isinstance(mlp.act, nn.Identity):
        return block
    nothing = nn.Identity().train(mlp.act.training)
    if not exchange(mlp.whole, mlp.act, nothing):
        raise DepthError(f"activation of layer {layer}", "a function", "a module of the MLP, to be replaced")
    return replace(block, mlp=replace(mlp, act=nothing))


def why_not(mlp: MlpParts | None) -> str:
    """Return why the linear layers of an MLP cannot be merged, or an empty string."""
    if mlp is None:
        return "a block without an MLP"
    if isinstance(mlp.act, Gate):
        return "a gated MLP (SwiGLU): its product of two halves is not linear without the activation either"
    if not isinstance(mlp.hidden_norm, nn.Identity):
        return "a norm between the linear layers"
    if not isinstance(mlp.fc1, nn.Linear | nn.Identity):
        return f"a first layer of the kind {type(mlp.fc1).__name__}"
    return ""


def merge(block: BlockParts, layer: int) -> BlockParts:
    """Merge the linear layers of an MLP whose activation is gone; return the block's parts.

    Where one layer would take more MACs than both, or there is only one, nothing changes.

    Args:
        block: Its modules.
        layer: Its number, counted from 1, for messages.

    Raises:
        DepthError: Dropout inside the MLP is active, or the MLP is no module of the block.
    """
    mlp = block.mlp
    if mlp is None or not isinstance(mlp.fc1, nn.Linear) or not isinstance(mlp.fc2, nn.Linear):
        return block
    if not saves_macs(mlp.fc1, mlp.fc2):
        return block
    active = [each.p for each in mlp.whole.modules() if isinstance(each, nn.Dropout) and each.training]
    if any(active):
        got = f"dropout {max(active)} in training mode"
        raise DepthError(
            f"activation of layer {layer}", got, "a model in eval mode", "call model.eval() first"
        )
    affine = Affine.of(mlp.fc1).then(Affine.of(mlp.fc2))
    norm, affine = _fold_norm(block, mlp, affine)
    out, affine = _fold_scales(block, mlp, affine)
    merged = affine.linear(like=mlp.fc2)
    if not exchange(block.whole, mlp.whole, merged):
        raise DepthError(
            f"activation of layer {layer}", "an MLP that is no module of its block", "one that is"
        )
    nothing = nn.Identity()
    parts = MlpParts(
        norm=norm, fc1=nothing, act=nothing, hidden_norm=nothing, fc2=merged, whole=merged, out=out
    )
    return replace(block, mlp=parts)


def _fold_norm(block: BlockParts, mlp: MlpParts, affine: Affine) -> tuple[nn.Module, Affine]:
    """Fold γ and β of a LayerNorm that the MLP alone reads."""
    others = [part for part in (block.attention, block.stand_in) if part is not None]
    shared = any(part.norm is mlp.norm for part in others)
    if shared or not isinstance(mlp.norm, nn.LayerNorm):
        return mlp.norm, affine
    bare = without_affine(mlp.norm)
    if not exchange(block.whole, mlp.norm, bare):
        return mlp.norm, affine
    return bare, affine.after_norm(mlp.norm)


def _fold_scales(block: BlockParts, mlp: MlpParts, affine: Affine) -> tuple[nn.Module, Affine]:
    """Fold LV-ViT's residual scale and LayerScale; one that is a parameter of the block itself (EVA) stays."""
    left: list[nn.Module] = []
    for piece in list(pieces(mlp.out)):
        factor = scale_of(piece)
        if factor is not None and exchange(block.whole, piece, nn.Identity()):
            affine = affine.scaled(factor)
        elif not isinstance(piece, nn.Identity):
            left.append(piece)
    return nn.Sequential(*left).eval() if left else nn.Identity(), affine
