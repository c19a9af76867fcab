"""Small modules that give differently written families the same parts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from timm.layers import LayerScale, apply_rot_embed_cat
from torch import Tensor, nn
from typing_extensions import override

__all__ = ["Divided", "Gate", "JoinedLinear", "Linear", "Rotary", "Scaled", "WeightedModule", "scale_of"]


class WeightedModule(nn.Module, ABC):
    """A stand-in for one linear layer; relevance and gradients read its weight."""

    @property
    @abstractmethod
    def weight(self) -> Float[Tensor, "o i"]:
        """The weight that one equivalent linear layer would have."""


class JoinedLinear(WeightedModule):
    """Linear layers with the same input, as one layer with concatenated outputs."""

    def __init__(self, parts: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    @property
    @override
    def weight(self) -> Float[Tensor, "o i"]:
        return torch.cat([part.get_parameter("weight") for part in self.parts])

    @override
    def forward(self, tokens: Float[Tensor, "... i"]) -> Float[Tensor, "... o"]:
        return torch.cat([part(tokens) for part in self.parts], dim=-1)


Linear: TypeAlias = nn.Linear | WeightedModule


class Divided(nn.Module):
    """A branch divided by a number before it is added (LV-ViT's `skip_lam`)."""

    def __init__(self, divisor: float) -> None:
        super().__init__()
        self.divisor = divisor

    @override
    def forward(self, branch: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return branch / self.divisor


class Scaled(nn.Module):
    """A branch times one learned factor per channel, where the factor is a parameter of the block, not a module."""

    def __init__(self, gamma: nn.Parameter) -> None:
        super().__init__()
        self.gamma = gamma

    @override
    def forward(self, branch: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return self.gamma * branch


def scale_of(module: nn.Module) -> Float[Tensor, " d"] | float | None:
    """Return the factor by which a module multiplies a branch, one or one per channel; None if it does not."""
    if isinstance(module, Divided):
        return 1 / module.divisor
    if isinstance(module, (Scaled, LayerScale)):
        return module.gamma
    return None


class Gate(nn.Module):
    """The product in a gated MLP: one half of the first layer's output is activated and multiplies the other half.

    Args:
        act: The activation.
        gate_last: Whether the second half is the activated one.
    """

    def __init__(self, act: nn.Module, *, gate_last: bool) -> None:
        super().__init__()
        self.act, self.gate_last = act, gate_last

    @override
    def forward(self, hidden: Float[Tensor, "... two_m"]) -> Float[Tensor, "... m"]:
        first, second = hidden.chunk(2, dim=-1)
        return first * self.act(second) if self.gate_last else self.act(first) * second


class Rotary(nn.Module):
    """Rotary position embedding of queries and keys; prefix tokens have no position and are not rotated.

    Args:
        table: Sine and cosine of every patch position, [patches, 2 head_dim], or one such table per head.
        num_prefix_tokens: Tokens before the first patch.
        rotate_half: Whether channel i is paired with i + head_dim / 2 instead of i + 1.
    """

    table: Tensor

    def __init__(self, table: Tensor, num_prefix_tokens: int, *, rotate_half: bool) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)
        self.num_prefix_tokens, self.rotate_half = num_prefix_tokens, rotate_half

    def at(self, positions: Int[Tensor, "b n"] | None) -> Tensor:
        """Return the table's rows for patches at `positions`: [b, 1 or heads, n, 2 head_dim]; None: all."""
        if positions is None:
            return self.table
        rows = self.table[..., positions, :]
        return rows.unsqueeze(1) if self.table.ndim == 2 else rows.transpose(0, 1)

    @override
    def forward(
        self, rows: Float[Tensor, "b h t c"], positions: Int[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b h t c"]:
        prefix, patches = rows[:, :, : self.num_prefix_tokens], rows[:, :, self.num_prefix_tokens :]
        table = self.at(positions)
        # A program of `to`, even to what it is already, has to be decomposed before it is translated to ONNX.
        if (table.dtype, table.device) != (rows.dtype, rows.device):
            table = table.to(rows)
        turned = apply_rot_embed_cat(patches, table, half=self.rotate_half)
        return torch.cat([prefix, turned], dim=2)
