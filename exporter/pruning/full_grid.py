"""A token for every patch of the image, also for those that were reduced: what a dense head reads.

A dropped patch has the token that it was when its layer dropped it. A merged one has the token of the survivor that
it has joined, over all layers.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.pruning.tokens import Decision, Tokens

__all__ = ["FullGrid"]


@dataclass(frozen=True)
class FullGrid:
    """The grid as far as a forward pass has come; at first every patch has its own token.

    `values` [b, patches, dim] are the tokens as they were before the last layer that dropped some, `joined`
    [b, patches] is the place of each patch's survivor after the last layer that merged some. None before the first.
    """

    prefix: int
    values: Float[Tensor, "b n d"] | None = None
    joined: Int[Tensor, "b n"] | None = None

    def before(self, tokens: Tokens, decision: Decision) -> "FullGrid":
        """Return the grid before `tokens` are reduced by a decision."""
        if decision.into is None:
            return FullGrid(self.prefix, values=self._with(tokens))
        joined = decision.into if self.joined is None else decision.into.gather(1, self.joined)
        return FullGrid(self.prefix, joined=joined)

    def behind(self, tokens: Tokens) -> Float[Tensor, "b n d"]:
        """Return the whole grid, with the tokens of the last block where there are any; before the final norm."""
        if self.joined is None:
            return self._with(tokens)
        patches = tokens.rows()[:, self.prefix :]
        return patches.gather(1, self.joined.unsqueeze(-1).expand(-1, -1, patches.shape[2]))

    def _with(self, tokens: Tokens) -> Tensor:
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
