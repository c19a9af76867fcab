"""Small modules that give differently written families the same parts; and heads that pool the patches.

A pooling is a function of a set of patches: their order must not matter. Where patches merge, a token stands for
several and counts as often: the mean stays that over all patches. Where patches are dropped, the pooling is that of
the survivors.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from timm.layers import AttentionPoolLatent, LayerScale, apply_rot_embed_cat
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from exporter.core.base.errors import ModelError


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
    """A branch times one learned factor per channel, where the factor is a parameter of the block, not a module.

    It is the block's by name, whatever tensor stands there when it is read.
    """

    def __init__(self, block: nn.Module, name: str) -> None:
        super().__init__()
        self._place = (block, name)

    @property
    def gamma(self) -> Float[Tensor, " d"]:
        """The factors."""
        block, name = self._place
        return getattr(block, name)

    def apart(self) -> LayerScale:
        """Return a module with the same parameter, for a network that loses the block."""
        scale = LayerScale(len(self.gamma))
        scale.gamma = self.gamma
        return scale

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

    With `gate_last`, it is the second half that is activated.
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

    def __init__(
        self, table: Tensor, num_prefix_tokens: int, *, rotate_half: bool
    ) -> None:
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
        self,
        rows: Float[Tensor, "b h t c"],
        positions: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b h t c"]:
        prefix = rows[:, :, : self.num_prefix_tokens]
        patches = rows[:, :, self.num_prefix_tokens :]
        table = self.at(positions)
        # A program of `to`, even to what it is already, has to be decomposed before it is translated to ONNX.
        if (table.dtype, table.device) != (rows.dtype, rows.device):
            table = table.to(rows)
        turned = apply_rot_embed_cat(patches, table, half=self.rotate_half)
        return torch.cat([prefix, turned], dim=2)


def split_head(head: nn.Module, name: str) -> tuple[nn.Module, nn.Linear | None]:
    """Return what a head does before its linear layer, and that layer; None if it has none.

    Raises:
        ModelError: It does more than that; `name` is the model's.
    """
    layers = list(head) if isinstance(head, nn.Sequential) else [head]
    last = layers[-1] if layers and isinstance(layers[-1], nn.Linear) else None
    layers = layers[:-1] if last is not None else layers
    for layer in layers:
        if not isinstance(layer, nn.LayerNorm | nn.Dropout | nn.Identity):
            got = f"a head with a {type(layer).__name__} before or behind the linear layer"
            expected = "one linear layer, with a LayerNorm or dropout before it, or nn.Identity"
            raise ModelError(name, got, expected)
    return nn.Sequential(*layers), last


class Pooling(nn.Module, ABC):
    """Pool tokens [batch, tokens, dim] to [batch, channels].

    The first `skipped` tokens, prefix tokens, are not pooled.
    """

    def __init__(self, skipped: int) -> None:
        super().__init__()
        self.skipped = skipped

    @property
    def macs(self) -> int:
        """Multiply-adds of the pooling of one image, apart from those of each token."""
        return 0

    @property
    def token_macs(self) -> int:
        """Multiply-adds for each pooled token."""
        return 0

    @override
    def forward(
        self, normed: Float[Tensor, "b t d"], sizes: Float[Tensor, "b t"]
    ) -> Float[Tensor, "b c"]:
        """Pool tokens after the final norm; `sizes` are how many patches each stands for, 0 for padding."""
        return self.pool(normed[:, self.skipped :], sizes[:, self.skipped :])

    @abstractmethod
    def pool(
        self, tokens: Float[Tensor, "b n d"], sizes: Float[Tensor, "b n"]
    ) -> Float[Tensor, "b c"]:
        """Pool the tokens that are not skipped."""


class MeanPooling(Pooling):
    """The mean over patches."""

    @override
    def pool(
        self, tokens: Float[Tensor, "b n d"], sizes: Float[Tensor, "b n"]
    ) -> Float[Tensor, "b d"]:
        # Shares, not sums: half precision holds them whatever the number of patches.
        shares = sizes / sizes.sum(dim=1, keepdim=True)
        # bmm: of counts that depend on the data, torch 2.6 cannot tell how `@` would broadcast.
        return torch.bmm(shares.to(tokens).unsqueeze(1), tokens).squeeze(1)


class MaxPooling(MeanPooling):
    """The maximum over patches, or the mean of it and their mean."""

    def __init__(self, skipped: int, *, with_mean: bool) -> None:
        super().__init__(skipped)
        self.with_mean = with_mean

    @override
    def pool(
        self, tokens: Float[Tensor, "b n d"], sizes: Float[Tensor, "b n"]
    ) -> Float[Tensor, "b d"]:
        largest = tokens.masked_fill((sizes == 0).unsqueeze(-1), -torch.inf).amax(dim=1)
        return (
            0.5 * (largest + super().pool(tokens, sizes)) if self.with_mean else largest
        )


class AttentionPooling(Pooling):
    """timm's pooling by the attention of a learned query (MAP; Zhai et al., CVPR 2022, SigLIP)."""

    def __init__(self, skipped: int, attention: AttentionPoolLatent) -> None:
        super().__init__(skipped)
        self.attention = attention

    @property
    def rows(self) -> int:
        """Rows of attention of the query: one for each head."""
        return self.attention.num_heads

    @property
    @override
    def macs(self) -> int:
        return sum(
            layer.weight.numel()
            for layer in self.attention.modules()
            if isinstance(layer, nn.Linear) and layer is not self.attention.kv
        )

    @property
    @override
    def token_macs(self) -> int:
        keys_and_values = self.attention.kv.weight.numel()
        return keys_and_values + keys_and_values // self.attention.kv.in_features

    @override
    def pool(
        self, tokens: Float[Tensor, "b n d"], sizes: Float[Tensor, "b n"]
    ) -> Float[Tensor, "b c"]:
        """Add the logarithm of a size to a token's logits: it is attended to as if it stood there so many times."""
        pooled: Tensor = self.attention(
            tokens, attn_mask=sizes.log().to(tokens)[:, None, None]
        )
        return pooled

    def probe(self, normed: Float[Tensor, "b t d"]) -> Float[Tensor, "b rows t"]:
        """Return the logits of the query's attention to all tokens, a row for each head.

        Where keys have no norm, query and key projection are one matrix [dim, heads]: O(tokens · dim · heads).
        """
        attention = self.attention
        query, weight, bias = self._query(), *self._key_projection()
        if isinstance(attention.k_norm, nn.Identity):
            rows = torch.einsum("hc,hcd->hd", query, weight)
            return F.linear(normed, rows, (query * bias).sum(-1)).transpose(1, 2)
        keys = F.linear(normed, weight.flatten(0, 1), bias.flatten())
        keys = attention.k_norm(keys.unflatten(-1, bias.shape).transpose(1, 2))
        return (keys @ query.unsqueeze(-1)).squeeze(-1)

    def _query(self) -> Float[Tensor, "h c"]:
        attention = self.attention
        heads = (1, 1, attention.num_heads, attention.head_dim)
        query = attention.q(attention.latent).reshape(heads).transpose(1, 2)
        return attention.q_norm(query)[0, :, 0] * attention.scale

    def _key_projection(self) -> tuple[Float[Tensor, "h c d"], Float[Tensor, "h c"]]:
        attention = self.attention
        heads = (attention.num_heads, attention.head_dim)
        weight = attention.kv.weight[: heads[0] * heads[1]].unflatten(0, heads)
        if attention.kv.bias is None:
            return weight, weight.new_zeros(heads)
        return weight, attention.kv.bias[: heads[0] * heads[1]].unflatten(0, heads)
