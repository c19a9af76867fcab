"""What a pruned forward pass asks of the tokens of a batch, however they lie in memory: see `grid` and `packed`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.models.base import BlockParts, PrunableViT
from exporter.models.block import Seen
from exporter.tensor_names import token_count_name, token_positions_name
from exporter.vocabulary import OutputKind

__all__ = ["Decision", "Tokens", "live_tokens"]


@dataclass(frozen=True)
class Decision:
    """What one layer decides: `index` [b, k] are the survivors among the patches that reached it.

    They are ascending, except those of pairs, which are in ToMe's order (`exporter.ops.pairing`).

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

    @abstractmethod
    def through(self, block: BlockParts) -> "Tokens":
        """A whole block."""

    @abstractmethod
    def attention(self, block: BlockParts) -> tuple["Tokens", Seen]:
        """A block's attention half, and what it gives beside; the block must have attention."""

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
        given = vit.spec.outputs
        wanted = [each for each in given if each.layer == layer and each.kind != OutputKind.GRID]
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
        return torch.arange(patches.shape[1], device=patches.device).expand(patches.shape[0], -1)


def live_tokens(decision: Decision, prefix: int) -> Tensor | None:
    """The tokens [b, prefix + k] that are an image's own after a decision, None where all are."""
    if decision.count is None:
        return None
    places = torch.arange(prefix + decision.index.shape[1], device=decision.index.device)
    return places < (decision.count + prefix).unsqueeze(1)
