"""Apply a depth plan to a ViT: the result is an ordinary model for every later stage."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from exporter.core.base.errors import DepthError
from exporter.core.base.vocabulary import AttentionVariant
from exporter.core.vit.parts import Gate, Scaled, scale_of
from exporter.core.vit.protocol import BlockParts, MlpParts, PrunableViT
from exporter.core.vit.spec import with_blocks
from exporter.depth.plan import DepthPlan


class MlpBlock(nn.Module):
    """A block without attention: x + out(mlp(norm2(x))), where x may have been increased by out1(norm1(x)) first.

    Networks call their blocks with a mask or a table of rotations, which only attention reads: they are
    ignored. `stand_in` has the parts of an attention that was replaced by the identity, which has no linear
    layer.
    """

    def __init__(self, mlp: MlpParts, stand_in: MlpParts | None = None) -> None:
        super().__init__()
        self.norm1 = None if stand_in is None else stand_in.norm
        self.out1 = None if stand_in is None else stand_in.out
        self.norm2 = mlp.norm
        self.mlp = mlp.whole
        self.out = mlp.out

    @override
    def forward(
        self, tokens: Float[Tensor, "b t d"], *_: Any, **__: Any
    ) -> Float[Tensor, "b t d"]:
        if self.norm1 is not None and self.out1 is not None:
            tokens = tokens + self.out1(self.norm1(tokens))
        return tokens + self.out(self.mlp(self.norm2(tokens)))


def exchange(root: nn.Module, old: nn.Module, new: nn.Module) -> bool:
    """Put a module in the place of another wherever `root` has it; return whether it has it."""
    places = [
        (parent, name)
        for parent in root.modules()
        for name, child in parent.named_children()
        if child is old
    ]
    for parent, name in places:
        parent.register_module(name, new)
    return bool(places)


def replaced(root: nn.Module, old: nn.Module, new: nn.Module, subject: str) -> None:
    """Put a module in the place of another; DepthError about the subject where `root` does not have it."""
    if not exchange(root, old, new):
        got = "a part that is no module of the network"
        raise DepthError(subject, got, "one that is, to be replaced")


def pieces(module: nn.Module) -> list[nn.Module]:
    """Return the modules that are run one after another: those of a Sequential, or the module alone."""
    return [*module] if isinstance(module, nn.Sequential) else [module]


@dataclass(frozen=True)
class Affine:
    """The map x → weight · x + bias, in float64; the methods return new maps."""

    weight: Float[Tensor, "o i"]
    bias: Float[Tensor, " o"]

    @classmethod
    def of(cls, linear: nn.Linear) -> "Affine":
        """Return the map of a linear layer; a missing bias is zero."""
        weight = linear.weight.detach().double()
        bias = (
            weight.new_zeros(len(weight))
            if linear.bias is None
            else linear.bias.detach().double()
        )
        return cls(weight, bias)

    def then(self, after: "Affine") -> "Affine":
        """Return after(self(x)): W = W2 · W1, b = W2 · b1 + b2."""
        return Affine(after.weight @ self.weight, after.weight @ self.bias + after.bias)

    def after_norm(self, norm: nn.LayerNorm) -> "Affine":
        """Return self(γ · x + β) for a norm's γ and β: W = W · diag(γ), b = W · β + b."""
        weight = self.weight
        bias = self.bias
        if norm.bias is not None:
            bias = weight @ norm.bias.detach().double() + bias
        if norm.weight is not None:
            weight = weight * norm.weight.detach().double()
        return Affine(weight, bias)

    def scaled(self, factor: Tensor | float) -> "Affine":
        """Return factor · self(x), for one factor or one per output channel [o]."""
        if not isinstance(factor, Tensor):
            return Affine(self.weight * factor, self.bias * factor)
        factor = factor.detach().double()
        return Affine(self.weight * factor.unsqueeze(1), self.bias * factor)

    def linear(self, like: nn.Linear) -> nn.Linear:
        """Return the map as a frozen linear layer in eval mode, with the dtype and the device of `like`."""
        outputs, inputs = self.weight.shape
        dtype = like.weight.dtype
        linear = nn.Linear(inputs, outputs, device="meta", dtype=dtype)
        linear.weight = nn.Parameter(self.weight.to(dtype), requires_grad=False)
        linear.bias = nn.Parameter(self.bias.to(dtype), requires_grad=False)
        return linear.eval()


def saves_macs(first: nn.Linear, second: nn.Linear) -> bool:
    """Return whether one merged layer takes no more MACs per token than both: o · i ≤ h · (i + o).

    For a dimension d on both sides: h ≥ d / 2. A narrower hidden layer is cheaper than the merged one.
    """
    inputs = first.in_features
    hidden = first.out_features
    outputs = second.out_features
    return outputs * inputs <= hidden * (inputs + outputs)


def without_affine(norm: nn.LayerNorm) -> nn.LayerNorm:
    """Return the norm without γ and β, to be folded into the next linear layer by `Affine.after_norm`."""
    device = None if norm.weight is None else norm.weight.device
    shape = list(norm.normalized_shape)
    return nn.LayerNorm(
        shape, eps=norm.eps, elementwise_affine=False, device=device
    ).eval()


def remove_activation(block: BlockParts, layer: int) -> BlockParts:
    """Replace the activation inside the block by the identity; messages name its 1-based `layer`."""
    mlp, subject = block.mlp, f"activation of layer {layer}"
    reason = why_not_merged(mlp)
    if mlp is None or reason:
        expected = "two linear layers and an activation between"
        raise DepthError(subject, reason, expected)
    if isinstance(mlp.act, nn.Identity):
        return block
    nothing = nn.Identity().train(mlp.act.training)
    replaced(mlp.whole, mlp.act, nothing, subject)
    return replace(block, mlp=replace(mlp, act=nothing))


def why_not_merged(mlp: MlpParts | None) -> str:
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
    """Merge the linear layers of an MLP whose activation is gone; messages name its 1-based `layer`.

    Where one layer would take more MACs than both, or there is only one, nothing changes. DepthError where dropout
    inside the MLP is active, or the MLP is no module of the block.
    """
    mlp = block.mlp
    if (
        mlp is None
        or not isinstance(mlp.fc1, nn.Linear)
        or not isinstance(mlp.fc2, nn.Linear)
    ):
        return block
    if not saves_macs(mlp.fc1, mlp.fc2):
        return block
    subject = f"activation of layer {layer}"
    for module in mlp.whole.modules():
        if isinstance(module, nn.Dropout) and module.training and module.p:
            got = f"dropout {module.p} in training mode"
            raise DepthError(
                subject, got, "a model in eval mode", "call model.eval() first"
            )
    affine = Affine.of(mlp.fc1).then(Affine.of(mlp.fc2))
    norm, affine = _fold_norm(block, mlp, affine)
    out, affine = _fold_scales(block, mlp, affine)
    merged = affine.linear(like=mlp.fc2)
    replaced(block.whole, mlp.whole, merged, subject)
    return replace(block, mlp=MlpParts(norm=norm, fc2=merged, whole=merged, out=out))


def _fold_norm(
    block: BlockParts, mlp: MlpParts, affine: Affine
) -> tuple[nn.Module, Affine]:
    """Fold γ and β of a LayerNorm that the MLP alone reads."""
    for part in (block.attention, block.stand_in):
        if part is not None and part.norm is mlp.norm:
            return mlp.norm, affine
    if not isinstance(mlp.norm, nn.LayerNorm):
        return mlp.norm, affine
    bare = without_affine(mlp.norm)
    if not exchange(block.whole, mlp.norm, bare):
        return mlp.norm, affine
    return bare, affine.after_norm(mlp.norm)


def _fold_scales(
    block: BlockParts, mlp: MlpParts, affine: Affine
) -> tuple[nn.Module, Affine]:
    """Fold LV-ViT's residual scale and LayerScale; one that is a parameter of the block itself (EVA) stays."""
    left: list[nn.Module] = []
    for piece in pieces(mlp.out):
        factor = scale_of(piece)
        if factor is not None and exchange(block.whole, piece, nn.Identity()):
            affine = affine.scaled(factor)
        elif not isinstance(piece, nn.Identity):
            left.append(piece)
    return nn.Sequential(*left).eval() if left else nn.Identity(), affine


@torch.no_grad()
def halve_later_branches(vit: PrunableViT, layer: int) -> None:
    """Let a network compute what it would with the tokens doubled before the MLP of a 1-based layer, in place."""
    for norm in _later_norms(vit, layer):
        norm.eps /= 4
    for linear in _later_outputs(vit, layer):
        linear.weight.mul_(0.5)
        if linear.bias is not None:
            linear.bias.mul_(0.5)


def _later_norms(vit: PrunableViT, layer: int) -> list[nn.LayerNorm]:
    """Return every norm that reads tokens after the removed attention, each once."""
    modules: list[nn.Module] = []
    for block in vit.blocks[layer - 1 :]:
        for part in (block.attention, *block.token_wise):
            if part is not None:
                modules.append(part.norm)
    # `norm` names the final norm in all built-in families; a network without one is refused.
    modules.append(getattr(vit.model, "norm", vit.model))
    norms: list[nn.LayerNorm] = []
    # A dictionary holds each module once, in the order of the first place.
    for module in dict.fromkeys(modules):
        if not isinstance(module, nn.LayerNorm):
            got = f"nose with a norm of the kind {type(module).__name__}"
            expected = "a LayerNorm wherever tokens are read"
            raise DepthError("variant", got, expected, "use remove")
        norms.append(module)
    return norms


def _later_outputs(vit: PrunableViT, layer: int) -> Iterator[nn.Linear]:
    for block in vit.blocks[layer - 1 :]:
        if block.attention is not None:
            yield block.attention.proj
        for part in block.token_wise:
            if isinstance(part.fc2, nn.Identity):
                raise DepthError(
                    "variant", "nose before an identity", "one variant in a model"
                )
            yield part.fc2


def apply_plan(
    vit: PrunableViT, plan: DepthPlan, *, unmerged: bool = False
) -> PrunableViT:
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
    pruned.compared = None
    for layer in plan.attention:
        _remove_attention(pruned, layer, plan.variant)
    for layer in plan.activation:
        _put(pruned, layer, remove_activation(pruned.blocks[layer - 1], layer))
        if not unmerged:
            _put(pruned, layer, merge(pruned.blocks[layer - 1], layer))
    pruned.spec = with_blocks(pruned.spec, pruned.blocks)
    return pruned


def _remove_attention(vit: PrunableViT, layer: int, variant: AttentionVariant) -> None:
    block = vit.blocks[layer - 1]
    if block.attention is None:
        return
    subject = f"layer {layer}"
    if block.mlp is None:
        got = "a block of attention alone"
        raise DepthError(subject, got, "a block that also has an MLP")
    stand_in, mlp = None, replace(block.mlp, out=_apart(block.mlp.out))
    if variant == AttentionVariant.IDENTITY:
        out = _apart(block.attention.out)
        stand_in = MlpParts(norm=block.attention.norm, out=out)
    mlp_block = MlpBlock(mlp, stand_in).train(block.whole.training)
    replaced(vit.model, block.whole, mlp_block, subject)
    _put(vit, layer, BlockParts(mlp_block, None, mlp, stand_in))
    if variant == AttentionVariant.NOSE:
        halve_later_branches(vit, layer)


def _apart(out: nn.Module) -> nn.Module:
    """Return what a branch goes through, with factors of its own where they are the block's, which goes."""
    parts = [
        piece.apart() if isinstance(piece, Scaled) else piece for piece in pieces(out)
    ]
    return parts[0] if len(parts) == 1 else nn.Sequential(*parts)


def _put(vit: PrunableViT, layer: int, block: BlockParts) -> None:
    vit.blocks = [*vit.blocks[: layer - 1], block, *vit.blocks[layer:]]
