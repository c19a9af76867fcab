"""Gates that learn how much each unit of a network matters, while its weights are trained (BoundaryDPT, stage 1).

A gate computes m · unit(x) + (1 − m) · pruned(x), where pruned(x) is what stands in the unit's place once it is
removed: x itself for an activation; for an attention branch 0, or with the variant nose the block's tokens; with
the variant identity the gate is on the attention itself, whose x are the tokens after its norm. A unit
that is there has m = 1; one that is not has no gate, for `apply_plan` has removed it. So the forward pass is that
of the network, bit for bit. The gradient is the gate's, ∂L/∂m = Σ δ · (unit(x) − pruned(x)), where δ is the
gradient of its output. It moves a score that starts at 0 and has no effect on the forward pass (straight-through).
The score is the unit's importance: where it falls, the loss would fall with the unit's share.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from exporter.core.base.errors import DepthError
from exporter.core.base.vocabulary import AttentionVariant, UnitType
from exporter.core.vit.protocol import AttentionParts, BlockParts, PrunableViT
from exporter.depth.surgery import pieces, why_not_merged

Hook = Callable[..., Any]


@dataclass(frozen=True)
class Importance:
    """The scores of all layers of each type, first to last; scores of different types are not comparable."""

    attention: tuple[float, ...]
    activation: tuple[float, ...]

    @classmethod
    def unknown(cls, depth: int) -> "Importance":
        """Return the scores before any training, all 0."""
        return cls((0.0,) * depth, (0.0,) * depth)

    def of(self, unit: UnitType) -> tuple[float, ...]:
        """Return the scores of one type."""
        return self.attention if unit == UnitType.ATTENTION else self.activation


class GatedViT(nn.Module):
    """The network of a ViT, not a copy, with one score a unit: to be trained as it would be, inside `gated`."""

    def __init__(self, vit: PrunableViT, importance: Importance) -> None:
        super().__init__()
        self.model = vit.model
        self.attention = nn.Parameter(
            torch.tensor(importance.attention, device=vit.device)
        )
        self.activation = nn.Parameter(
            torch.tensor(importance.activation, device=vit.device)
        )

    @override
    def forward(self, images: Float[Tensor, "b c h w"]) -> Any:
        return self.model(images)

    @property
    def importance(self) -> Importance:
        """The scores as they are now."""
        return Importance(
            tuple(self.attention.tolist()), tuple(self.activation.tolist())
        )


@contextmanager
def gated(
    vit: PrunableViT,
    importance: Importance,
    variant: AttentionVariant = AttentionVariant.REMOVE,
) -> Iterator[GatedViT]:
    """Put a gate on every unit that can be removed, until the `with` ends; scores start from `importance`.

    DepthError where an attention branch does not end in a module of the network.
    """
    student = GatedViT(vit, importance)
    units = removable(vit)
    with ExitStack() as stack:
        for layer in units[UnitType.ACTIVATION]:
            act = _mlp_act(vit.blocks[layer - 1])
            hook = _activation_hook(student, layer)
            stack.callback(act.register_forward_hook(hook).remove)
        for layer in units[UnitType.ATTENTION]:
            part = vit.blocks[layer - 1].attention
            assert part is not None
            for module, hook in _attention_hooks(student, layer, part, variant):
                stack.callback(module.register_forward_hook(hook).remove)
        yield student


def removable(vit: PrunableViT) -> dict[UnitType, tuple[int, ...]]:
    """Return the layers, counted from 1, whose unit of a type is there and can be removed."""
    attention: list[int] = []
    activation: list[int] = []
    for layer, block in enumerate(vit.blocks, start=1):
        if block.attention is not None and block.mlp is not None:
            attention.append(layer)
        if not why_not_merged(block.mlp) and not isinstance(
            _mlp_act(block), nn.Identity
        ):
            activation.append(layer)
    return {
        UnitType.ATTENTION: tuple(attention),
        UnitType.ACTIVATION: tuple(activation),
    }


def straight_through(
    output: Float[Tensor, "*shape"], pruned: Tensor | float, score: Float[Tensor, ""]
) -> Float[Tensor, "*shape"]:
    """Return `output`; backward, the score gets the gradient of m · output + (1 − m) · pruned for m."""
    return output + (score - score.detach()) * (output - pruned).detach()


def _mlp_act(block: BlockParts) -> nn.Module:
    assert block.mlp is not None
    return block.mlp.act


def _activation_hook(student: GatedViT, layer: int) -> Hook:
    def gate(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return straight_through(output, inputs[0], student.activation[layer - 1])

    return gate


def _attention_hooks(
    student: GatedViT, layer: int, part: AttentionParts, variant: AttentionVariant
) -> Iterator[tuple[nn.Module, Hook]]:
    """Yield the modules of an attention branch to hook, with their hooks.

    Its last module gives the branch, its projection the attention. The norm has what stands in their place: it
    reads the block's tokens, and gives those that attention reads.
    """
    *_, last = pieces(part.out)
    if variant == AttentionVariant.IDENTITY:
        last = part.proj
    if all(last is not module for module in student.model.modules()):
        got = "a branch whose last step is no module of the network"
        raise DepthError(f"attention of layer {layer}", got, "one that is, to be gated")
    tokens: list[Tensor] = []

    def remember(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        tokens[:] = inputs if variant == AttentionVariant.NOSE else (output,)

    def gate(_: nn.Module, __: tuple[Tensor], output: Tensor) -> Tensor:
        pruned = tokens.pop() if tokens else 0.0
        return straight_through(output, pruned, student.attention[layer - 1])

    if variant != AttentionVariant.REMOVE:
        yield part.norm, remember
    yield last, gate
