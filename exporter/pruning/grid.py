"""A row of tokens for each image.

Where images keep different numbers of patches, the rows of some end in padding, which enters no attention, no score
and no count. Tokens merge where every image keeps the same number of them.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import override

from exporter.models.base import BlockParts, PrunableViT
from exporter.models.block import Seen, attention_half, mlp_half, whole_block
from exporter.ops.merging import merge_tokens
from exporter.ops.selection import take_tokens
from exporter.pruning.tokens import Decision, Tokens, live_tokens

__all__ = ["Grid"]


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
    def attention(self, block: BlockParts) -> tuple["Grid", Seen]:
        values, seen = attention_half(block, self.values, self.positions, self.live, self.key_bias)
        return replace(self, values=values), seen

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
            values = torch.where(self.live.unsqueeze(-1), values, values[:, self.prefix : self.prefix + 1])
        return vit.norm(values)
