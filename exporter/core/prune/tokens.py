"""What a pruned forward pass asks of the tokens of a batch, and the layouts of them in memory.

A grid has a row of tokens for each image. Where images keep different numbers of patches, the rows of some end in
padding, which enters no attention, no score and no count. Tokens merge where every image keeps the same number of
them. Packed tokens of all images lie end to end: linear layers see survivors alone, only attention is spread over a
grid. A dense head reads a full grid, a token for every patch: a dropped patch has the token that it was when its
layer dropped it, a merged one that of the survivor that it has joined, over all layers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from exporter.core.base.records import ModelSpec
from exporter.core.base.tensor_names import token_count_name, token_positions_name
from exporter.core.base.vocabulary import OutputKind
from exporter.core.prune.ops.merging import merge_tokens
from exporter.core.prune.ops.selection import pack_tokens, take_rows, take_tokens
from exporter.core.vit.protocol import (
    BlockParts,
    PrunableViT,
    Seen,
    add_attention,
    attend,
    attention_half,
    mlp_half,
    project,
    whole_block,
)


@dataclass(frozen=True)
class Decision:
    """What one layer decides: `index` [b, k] are the survivors among the patches that reached it.

    They are ascending, except those of pairs, which are in ToMe's order (`exporter.core.prune.ops.merging`).

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
    `sizes` [b, prefix + n] are how many patches each token stands for, None where each stands for one.
    """

    positions: Tensor | None
    count: Tensor | None
    live: Tensor | None
    sizes: Tensor | None = None

    def through(self, block: BlockParts) -> "Tokens":
        """A whole block."""
        tokens = self if block.attention is None else self.attention(block)[0]
        return tokens.mlp(block)

    @abstractmethod
    def attention(self, block: BlockParts) -> tuple["Tokens", Seen]:
        """A block's attention half, and what it gives beside; the block must have attention."""

    @abstractmethod
    def alone(self, block: BlockParts, read: int) -> "Grid":
        """The first `read` tokens behind a whole block; the others are only attended to."""

    @abstractmethod
    def reduce(self, decision: Decision) -> "Tokens":
        """The prefix tokens and the survivors, merged with the patches that join them where any do."""

    @abstractmethod
    def mlp(self, block: BlockParts) -> "Tokens":
        """A block's MLP half; the tokens themselves where it has none."""

    @abstractmethod
    def rows(self) -> Float[Tensor, "b t d"]:
        """A row for each image: prefix tokens, patches, padding."""

    @abstractmethod
    def normed(self, vit: PrunableViT) -> Float[Tensor, "b t d"]:
        """The same after the final norm."""

    def outputs(self, vit: PrunableViT, layer: int = 0) -> dict[str, Tensor]:
        """What the model gives of these tokens after a 1-based layer, or the final norm, by tensor name."""
        wanted = [
            output
            for output in vit.spec.outputs
            if output.layer == layer and output.kind != OutputKind.GRID
        ]
        if not wanted:
            return {}
        rows, tensors = self.rows() if layer else self.normed(vit), {}
        sizes = self.sizes if self.live is None else self.live.float()
        for output in wanted:
            if output.kind != OutputKind.TOKENS:
                tensors[output.name] = vit.head(rows, output, sizes)
                continue
            patches = rows[:, vit.spec.num_prefix_tokens :]
            tensors[output.name] = patches
            tensors[token_positions_name(output.name)] = self._standing(patches)
            if self.count is not None:
                tensors[token_count_name(output.name)] = self.count
        return tensors

    def _standing(self, patches: Float[Tensor, "b n d"]) -> Int[Tensor, "b n"]:
        if self.positions is not None:
            return self.positions
        return torch.arange(patches.shape[1], device=patches.device).expand(
            patches.shape[0], -1
        )


def live_tokens(decision: Decision, prefix: int) -> Tensor | None:
    """The tokens [b, prefix + k] that are an image's own after a decision, None where all are."""
    if decision.count is None:
        return None
    places = torch.arange(
        prefix + decision.index.shape[1], device=decision.index.device
    )
    return places < (decision.count + prefix).unsqueeze(1)


@dataclass(frozen=True)
class FullGrid:
    """The grid as far as a forward pass has come; at first every patch has its own token.

    `names` are those of the outputs that are this grid; without any, nothing is computed. `values`
    [b, patches, dim] are the tokens as they were before the last layer that dropped some, `joined` [b, patches] is
    the place of each patch's survivor after the last layer that merged some. None before the first.
    """

    names: tuple[str, ...]
    prefix: int
    values: Float[Tensor, "b n d"] | None = None
    joined: Int[Tensor, "b n"] | None = None

    @classmethod
    def of(cls, spec: ModelSpec, ranks: Int[Tensor, "1 n"] | None) -> "FullGrid":
        """Return the grid before the first block, given the rank of each patch in the order; None: row by row."""
        names = tuple(
            output.name for output in spec.outputs if output.kind == OutputKind.GRID
        )
        return cls(names, spec.num_prefix_tokens, joined=ranks)

    def before(self, tokens: Tokens, decision: Decision) -> "FullGrid":
        """Return the grid before `tokens` are reduced by a decision."""
        if not self.names:
            return self
        if decision.into is None:
            return replace(self, values=self._with(tokens))
        into = joined = decision.into
        if self.joined is not None:
            joined = into.gather(1, self.joined.expand(into.shape[0], -1))
        return replace(self, joined=joined)

    def outputs(self, vit: PrunableViT, tokens: Tokens) -> dict[str, Tensor]:
        """Return the whole grid after the final norm, by output name; `tokens` are behind the blocks."""
        if not self.names:
            return {}
        if self.joined is None:
            grid = self._with(tokens)
        else:
            patches = tokens.rows()[:, self.prefix :]
            grid = patches.gather(
                1, self.joined.unsqueeze(-1).expand(-1, -1, patches.shape[2])
            )
        return dict.fromkeys(self.names, vit.norm(grid))

    def _with(self, tokens: Tokens) -> Tensor:
        """Return the grid with these tokens at their positions."""
        patches, positions = tokens.rows()[:, self.prefix :], tokens.positions
        if self.values is None or positions is None:
            return patches
        values, count = self.values, self.values.shape[1]
        if tokens.live is None:
            return _placed(values, positions, patches)
        # Padding goes to a place behind the grid.
        positions = positions.masked_fill(~tokens.live[:, self.prefix :], count)
        with_spare = torch.cat([values, values[:, :1]], dim=1)
        return _placed(with_spare, positions, patches)[:, :count]


def _placed(values: Tensor, positions: Tensor, patches: Tensor) -> Tensor:
    images = (
        torch.arange(values.shape[0], device=values.device)
        .unsqueeze(1)
        .expand_as(positions)
    )
    return values.index_put((images, positions), patches)


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
    def key_sizes(self) -> Tensor | None:
        """How many times each token counts as a key, [b, prefix + n]; None where each counts once."""
        return self.sizes if self.weighs_keys else None

    @property
    def key_bias(self) -> Tensor | None:
        """What is added to the logits of each key, [b, prefix + n]; None for nothing."""
        return None if self.key_sizes is None else self.key_sizes.log()

    def in_order(self, order: Int[Tensor, " n"]) -> "Grid":
        """Return all patches in another order, none of which has merged."""
        prefix = torch.arange(self.prefix, device=order.device)
        rows = torch.cat([prefix, order + self.prefix])
        values = self.values.index_select(1, rows)
        positions = order.expand(values.shape[0], -1)
        return replace(self, values=values, positions=positions)

    def taken(self, index: Int[Tensor, "b k"]) -> "Grid":
        """Return some or all patches in another order, none of which has merged."""
        assert self.positions is not None
        values = take_tokens(self.values, index, self.prefix)
        return replace(self, values=values, positions=self.positions.gather(1, index))

    @override
    def through(self, block: BlockParts) -> Tokens:
        if self.live is None and self.key_sizes is None:
            return replace(self, values=whole_block(block, self.values, self.positions))
        return super().through(block)

    @override
    def attention(self, block: BlockParts) -> tuple["Grid", Seen]:
        values, seen = attention_half(
            block, self.values, self.positions, self.live, self.key_bias
        )
        return replace(self, values=values), seen

    @override
    def alone(self, block: BlockParts, read: int) -> "Grid":
        qkv = project(block, self.values)
        context, _ = attend(
            block, qkv, self.positions, self.live, self.key_bias, asking=read
        )
        return Grid(add_attention(block, self.values[:, :read], context), read).mlp(
            block
        )

    @override
    def reduce(self, decision: Decision) -> "Grid":
        index, into = decision.index, decision.into
        positions = index if self.positions is None else self.positions.gather(1, index)
        if into is None:
            values, sizes = take_tokens(self.values, index, self.prefix), self.sizes
        else:
            values, sizes = merge_tokens(
                self.values, into, self.sizes, index.shape[1], self.prefix
            )
        return replace(
            self,
            values=values,
            positions=positions,
            count=decision.count,
            live=live_tokens(decision, self.prefix),
            sizes=sizes,
        )

    @override
    def mlp(self, block: BlockParts) -> "Grid":
        return replace(self, values=mlp_half(block, self.values))

    @override
    def rows(self) -> Tensor:
        return self.values

    @override
    def normed(self, vit: PrunableViT) -> Tensor:
        values = self.values
        if self.live is not None and vit.spec.patch_head_macs and vit.pooling is None:
            # A head that takes a maximum over patches must not meet padding: it gets the first survivor again.
            values = torch.where(
                self.live.unsqueeze(-1),
                values,
                values[:, self.prefix : self.prefix + 1],
            )
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
        slots = torch.arange(batch * width, device=grid.values.device).reshape(
            batch, width
        )
        positions = torch.arange(width - grid.prefix, device=slots.device).expand(
            batch, -1
        )
        return _packed(
            grid.values.flatten(0, 1), grid.prefix, slots, positions, decision
        )

    @override
    def attention(self, block: BlockParts) -> tuple["Packed", Seen]:
        qkv = take_rows(project(block, self.values), self.slots)
        context, seen = attend(block, qkv, self.positions, self.live)
        context = context.flatten(0, 1).index_select(0, self.places)
        return replace(self, values=add_attention(block, self.values, context)), seen

    @override
    def alone(self, block: BlockParts, read: int) -> Grid:
        qkv = take_rows(project(block, self.values), self.slots)
        context, _ = attend(block, qkv, self.positions, self.live, asking=read)
        first = take_rows(self.values, self.slots[:, :read])
        return Grid(add_attention(block, first, context), read).mlp(block)

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


def _packed(
    values: Tensor, prefix: int, slots: Tensor, positions: Tensor, decision: Decision
) -> Packed:
    """Pack the survivors: `slots` and `positions` are those of the layout that they were kept in."""
    assert decision.count is not None
    rows, live, slots, places = pack_tokens(
        slots, decision.index, decision.count, prefix
    )
    return Packed(
        values.index_select(0, rows),
        prefix,
        positions.gather(1, decision.index),
        decision.count,
        live,
        slots,
        places,
    )
