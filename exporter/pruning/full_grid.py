"""A token for every patch of the image, also for those that were reduced: what a dense head reads.

A dropped patch has the token that it was when its layer dropped it. A merged one has the token of the survivor that
it has joined, over all layers.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.models.base import PrunableViT
from exporter.pruning.tokens import Decision, Tokens
from exporter.records import ModelSpec
from exporter.vocabulary import OutputKind

__all__ = ["FullGrid"]


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
    def of(cls, spec: ModelSpec) -> "FullGrid":
        """Return the grid before the first block."""
        names = tuple(output.name for output in spec.outputs if output.kind == OutputKind.GRID)
        return cls(names, spec.num_prefix_tokens)

    def before(self, tokens: Tokens, decision: Decision) -> "FullGrid":
        """Return the grid before `tokens` are reduced by a decision."""
        if not self.names:
            return self
        if decision.into is None:
            return replace(self, values=self._with(tokens))
        joined = decision.into if self.joined is None else decision.into.gather(1, self.joined)
        return replace(self, joined=joined)

    def outputs(self, vit: PrunableViT, tokens: Tokens) -> dict[str, Tensor]:
        """Return the whole grid after the final norm, by output name; `tokens` are behind the blocks."""
        if not self.names:
            return {}
        if self.joined is None:
            grid = self._with(tokens)
        else:
            patches = tokens.rows()[:, self.prefix :]
            grid = patches.gather(1, self.joined.unsqueeze(-1).expand(-1, -1, patches.shape[2]))
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
        return _placed(torch.cat([values, values[:, :1]], dim=1), positions, patches)[:, :count]


def _placed(values: Tensor, positions: Tensor, patches: Tensor) -> Tensor:
    images = torch.arange(values.shape[0], device=values.device).unsqueeze(1).expand_as(positions)
    return values.index_put((images, positions), patches)
