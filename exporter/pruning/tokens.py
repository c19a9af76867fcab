"""How the tokens of a batch lie in memory, and how blocks and retentions act on them.

A `Grid` holds a row of tokens for each image; where images keep different numbers of patches, the rows of some
end in padding, which enters no attention, no score and no count. `Packed` holds the tokens of all images end to
end: linear layers see survivors alone, and only attention is spread over a grid. Tokens merge in a `Grid` alone,
and where every image keeps the same number of them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from exporter.models.base import BlockParts, PrunableViT
from exporter.models.block import add_attention, attend, attention_half, mlp_half, project, whole_block
from exporter.ops.merging import merge_into, merge_tokens
from exporter.ops.selection import take_rows, take_tokens
from exporter.tensor_names import token_count_name, token_positions_name
from exporter.vocabulary import OutputKind

__all__ = ["Decision", "Grid", "Packed", "Tokens"]


@dataclass(frozen=True)
class Decision:
    """What one layer decides: `index` [b, k] are the survivors, ascending, among the patches that reached it.

    `count` [b] says how many of each row are survivors, the rest being padding; None: all of them. `into` [b, n]
    is the place, from 0 to k − 1, of the survivor that each patch joins, a survivor its own; None: the others go.
    """

    index: Int[Tensor, "b k"]
    count: Int[Tensor, " b"] | None = None
    into: Int[Tensor, "b n"] | None = None


class Tokens(ABC):
    """What a pruned forward pass asks of a layout.

    `positions` [b, n] are where the patches stand in the image, None where all of them stand; `count` [b] is how
    many of the n are an image's own, None where all are; `live` [b, prefix + n] marks these and the prefix tokens.
    """

    positions: Tensor | None
    count: Tensor | None
    live: Tensor | None

    @abstractmethod
    def through(self, block: BlockParts) -> "Tokens":
        """A whole block."""

    @abstractmethod
    def attention(self, block: BlockParts) -> tuple["Tokens", Float[Tensor, "b h t"]]:
        """A block's attention half, and the class token's attention logits beside it; it must have attention."""

    @abstractmethod
    def nearest(self, index: Int[Tensor, "b k"]) -> tuple[Int[Tensor, "b n"], Float[Tensor, "b n"]]:
        """Where each patch would merge, were `index` the survivors, and how clearly: see `merge_into`."""

    @abstractmethod
    def reduce(self, decision: Decision) -> "Tokens":
        """The prefix tokens and the survivors, merged with the patches that join them where any do."""

    @abstractmethod
    def mlp(self, block: BlockParts) -> "Tokens":
        """A block's MLP half; the tokens themselves where it has none."""

    @abstractmethod
    def normed(self, vit: PrunableViT) -> Float[Tensor, "b t d"]:
        """A row for each image after the final norm: prefix tokens, patches, padding."""

    def outputs(self, vit: PrunableViT) -> dict[str, Tensor]:
        """What the model gives, by the names of its tensors and in their order."""
        normed, tensors = self.normed(vit), {}
        for output in vit.spec.outputs:
            if output.kind != OutputKind.TOKENS:
                tensors[output.name] = vit.head(normed, output)
                continue
            patches = normed[:, vit.spec.num_prefix_tokens :]
            tensors[output.name] = patches
            tensors[token_positions_name(output.name)] = self._standing(patches)
            if self.count is not None:
                tensors[token_count_name(output.name)] = self.count
        return tensors

    def _standing(self, patches: Float[Tensor, "b n d"]) -> Int[Tensor, "b n"]:
        if self.positions is not None:
            return self.positions
        return torch.arange(patches.shape[1], device=patches.device).expand(patches.shape[0], -1)


@dataclass(frozen=True)
class Grid(Tokens):
    """`values` [b, prefix + n, dim].

    `sizes` [b, prefix + n] are how many patches each token stands for, 1 for a prefix token; None where all are 1.
    With `weighs_keys` a token is attended to as if it stood there so many times.
    """

    values: Tensor
    prefix: int
    positions: Tensor | None = None
    count: Tensor | None = None
    live: Tensor | None = None
    sizes: Tensor | None = None
    weighs_keys: bool = False

    @property
    def key_bias(self) -> Tensor | None:
        """What is added to the logits of each key, [b, prefix + n]; None for nothing."""
        return self.sizes.log() if self.weighs_keys and self.sizes is not None else None

    @override
    def through(self, block: BlockParts) -> "Grid":
        if self.live is None and self.key_bias is None:
            return replace(self, values=whole_block(block, self.values, self.positions))
        return (self if block.attention is None else self.attention(block)[0]).mlp(block)

    @override
    def attention(self, block: BlockParts) -> tuple["Grid", Tensor]:
        values, row = attention_half(block, self.values, self.positions, self.live, self.key_bias)
        return replace(self, values=values), row

    @override
    def nearest(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return merge_into(self.values, index, self.prefix)

    @override
    def reduce(self, decision: Decision) -> "Grid":
        kept = decision.index
        positions = kept if self.positions is None else self.positions.gather(1, kept)
        if decision.into is None:
            values, sizes = take_tokens(self.values, kept, self.prefix), self.sizes
        else:
            values, sizes = merge_tokens(self.values, decision.into, self.sizes, kept.shape[1], self.prefix)
        return replace(
            self,
            values=values,
            positions=positions,
            count=decision.count,
            live=_live(decision, self.prefix),
            sizes=sizes,
        )

    @override
    def mlp(self, block: BlockParts) -> "Grid":
        return replace(self, values=mlp_half(block, self.values))

    @override
    def normed(self, vit: PrunableViT) -> Tensor:
        values = self.values
        if self.live is not None and vit.spec.patch_head_macs:
            # A head that takes a maximum over patches must not meet padding: it gets the first survivor again.
            values = torch.where(self.live.unsqueeze(-1), values, values[:, self.prefix : self.prefix + 1])
        return vit.norm(values)


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
    def attention(self, block: BlockParts) -> tuple["Packed", Tensor]:
        qkv = take_rows(project(block, self.values), self.slots)
        context, row = attend(block, qkv, self.positions, self.live)
        context = context.flatten(0, 1).index_select(0, self.places)
        return replace(self, values=add_attention(block, self.values, context)), row

    @override
    def nearest(self, index: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("packed tokens do not merge: check_reduction keeps them apart")

    @override
    def reduce(self, decision: Decision) -> "Packed":
        return _packed(self.values, self.prefix, self.slots, self.positions, decision)

    @override
    def mlp(self, block: BlockParts) -> "Packed":
        return replace(self, values=mlp_half(block, self.values))

    @override
    def normed(self, vit: PrunableViT) -> Tensor:
        return take_rows(vit.norm(self.values), self.slots)


def _packed(values: Tensor, prefix: int, slots: Tensor, positions: Tensor, decision: Decision) -> Packed:
    """Pack the survivors: `slots` and `positions` are those of the layout that they were kept in."""
    assert decision.count is not None
    live = _live(decision, prefix)
    assert live is not None
    taken = torch.cat([slots[:, :prefix], slots[:, prefix:].gather(1, decision.index)], dim=1)
    places = live.flatten().nonzero().squeeze(1)
    tokens = (decision.count + prefix).unsqueeze(1)
    # Padding is the image's own last survivor again, which a maximum over patches may meet.
    within = torch.minimum(torch.arange(taken.shape[1], device=slots.device), tokens - 1)
    after = tokens.cumsum(0) - tokens + within
    return Packed(
        values.index_select(0, taken.flatten().index_select(0, places)),
        prefix,
        positions.gather(1, decision.index),
        decision.count,
        live,
        after,
        places,
    )


def _live(decision: Decision, prefix: int) -> Tensor | None:
    if decision.count is None:
        return None
    places = torch.arange(prefix + decision.index.shape[1], device=decision.index.device)
    return places < (decision.count + prefix).unsqueeze(1)
