"""The tokens of all images end to end: linear layers see survivors alone, only attention is spread over a grid."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from exporter.models.base import BlockParts, PrunableViT
from exporter.models.block import Seen, add_attention, attend, mlp_half, project
from exporter.ops.packing import pack_tokens
from exporter.ops.selection import take_rows
from exporter.pruning.grid import Grid
from exporter.pruning.tokens import Decision, Tokens

__all__ = ["Packed"]


@dataclass(frozen=True)
class Packed(Tokens):
    """`values` [total, dim], the first image's tokens first.

    `slots` [b, prefix + n] says which of them stands in each place of the grid that attention needs; `places`
    [total] is the way back, into the grid laid flat.
    """

    values: Float[Tensor, "total d"]
    prefix: int
    positions: Tensor
    count: Tensor
    live: Bool[Tensor, "b t"]
    slots: Int[Tensor, "b t"]
    places: Int[Tensor, " total"]

    @classmethod
    def of(cls, grid: Grid, decision: Decision) -> "Packed":
        """The survivors of an even grid."""
        batch, width = grid.values.shape[:2]
        slots = torch.arange(batch * width, device=grid.values.device).reshape(batch, width)
        positions = torch.arange(width - grid.prefix, device=slots.device).expand(batch, -1)
        return _packed(grid.values.flatten(0, 1), grid.prefix, slots, positions, decision)

    @override
    def through(self, block: BlockParts) -> "Packed":
        return (self if block.attention is None else self.attention(block)[0]).mlp(block)

    @override
    def attention(self, block: BlockParts) -> tuple["Packed", Seen]:
        qkv = take_rows(project(block, self.values), self.slots)
        context, seen = attend(block, qkv, self.positions, self.live)
        context = context.flatten(0, 1).index_select(0, self.places)
        return replace(self, values=add_attention(block, self.values, context)), seen

    @override
    def reduce(self, decision: Decision) -> "Packed":
        return _packed(self.values, self.prefix, self.slots, self.positions, decision)

    @override
    def mlp(self, block: BlockParts) -> "Packed":
        return replace(self, values=mlp_half(block, self.values))

    @override
    def rows(self) -> Tensor:
        return take_rows(self.values, self.slots)

    @override
    def normed(self, vit: PrunableViT) -> Tensor:
        return take_rows(vit.norm(self.values), self.slots)


def _packed(values: Tensor, prefix: int, slots: Tensor, positions: Tensor, decision: Decision) -> Packed:
    """Pack the survivors: `slots` and `positions` are those of the layout that they were kept in."""
    assert decision.count is not None
    packing = pack_tokens(slots, decision.index, decision.count, prefix)
    return Packed(
        values.index_select(0, packing.rows),
        prefix,
        positions.gather(1, decision.index),
        decision.count,
        packing.live,
        packing.slots,
        packing.places,
    )
