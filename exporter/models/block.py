"""One block in two halves: attention with what scores patches, and what reads tokens one by one, the MLP.

Together the halves run the operations of the original block, in the same order. A block may lack either.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from exporter.models.base import AttentionParts, BlockParts

__all__ = ["Seen", "add_attention", "attend", "attention_half", "heads", "mlp_half", "project", "whole_block"]


class Seen(NamedTuple):
    """What attention reads; patches are scored from it, since its probabilities stay inside a runtime's kernel.

    `query` and `key` [batch, heads, tokens, head_dim] are normed and rotated; `key_bias` [batch, tokens] is added
    to the logits of each key, None for nothing.
    """

    query: Tensor
    key: Tensor
    key_bias: Tensor | None = None

    @property
    def scale(self) -> float:
        """The factor of the logits."""
        return float(self.key.shape[-1] ** -0.5)


def whole_block(
    block: BlockParts, tokens: Float[Tensor, "b t d"], positions: Int[Tensor, "b n"] | None = None
) -> Float[Tensor, "b t d"]:
    """Run the original block, on patches at `positions`, or on all patches where it is None."""
    if block.attention is None or block.attention.rotary is None:
        return block.whole(tokens)
    return block.whole(tokens, rope=block.attention.rotary.at(positions))


def heads(
    block: BlockParts, qkv: Float[Tensor, "b t three_d"], positions: Int[Tensor, "b n"] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value, each [batch, heads, tokens, head_dim], normed and rotated, without the scale."""
    attention = _attention(block)
    batch, tokens, _ = qkv.shape
    parts = qkv.reshape(batch, tokens, 3, attention.num_heads, attention.head_dim).permute(2, 0, 3, 1, 4)
    query, key, value = parts.unbind(0)
    query, key = attention.q_norm(query), attention.k_norm(key)
    if attention.rotary is not None:
        query, key = attention.rotary(query, positions), attention.rotary(key, positions)
    return query, key, value


def attention_half(
    block: BlockParts,
    tokens: Float[Tensor, "b t d"],
    positions: Int[Tensor, "b n"] | None = None,
    live: Bool[Tensor, "b t"] | None = None,
    key_bias: Float[Tensor, "b t"] | None = None,
) -> tuple[Float[Tensor, "b t d"], Seen]:
    """Return x + attn(norm1 x), and what attention reads.

    Args:
        block: Its modules; it has an attention part.
        tokens: Prefix tokens, then patches.
        positions: The positions of the patches, None for all of them.
        live: Which tokens may be attended to, None for all.
        key_bias: Added to the logit of each token for every query, None for nothing.
    """
    context, seen = attend(block, project(block, tokens), positions, live, key_bias)
    return add_attention(block, tokens, context), seen


def project(block: BlockParts, tokens: Float[Tensor, "... d"]) -> Float[Tensor, "... three_d"]:
    """Return each token's query, key and value, concatenated: the part of attention before tokens interact."""
    attention = _attention(block)
    return attention.qkv(attention.norm(tokens))


def attend(
    block: BlockParts,
    qkv: Float[Tensor, "b t three_d"],
    positions: Int[Tensor, "b n"] | None = None,
    live: Bool[Tensor, "b t"] | None = None,
    key_bias: Float[Tensor, "b t"] | None = None,
) -> tuple[Float[Tensor, "b t d"], Seen]:
    """Return the context of each token, heads concatenated; and what attention reads."""
    attention = _attention(block)
    query, key, value = heads(block, qkv, positions)
    dropout = attention.dropout if block.whole.training else 0.0
    allowed = _mask(live, key_bias)
    mask = None if allowed is None else allowed[:, None, None, :]
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return context.transpose(1, 2).reshape(qkv.shape[0], qkv.shape[1], -1), Seen(query, key, key_bias)


def _mask(
    live: Bool[Tensor, "b t"] | None, key_bias: Float[Tensor, "b t"] | None
) -> Bool[Tensor, "b t"] | Float[Tensor, "b t"] | None:
    """Return which keys may be attended to, or the bias added to their logits."""
    if live is None or key_bias is None:
        return live if key_bias is None else key_bias
    return key_bias.masked_fill(~live, -torch.inf)


def add_attention(
    block: BlockParts, tokens: Float[Tensor, "... d"], context: Float[Tensor, "... d"]
) -> Float[Tensor, "... d"]:
    """Return the tokens plus their projected contexts: the part of attention after tokens have interacted."""
    attention = _attention(block)
    return tokens + attention.out(attention.proj(attention.context_norm(context)))


def mlp_half(block: BlockParts, tokens: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """Return x + mlp(norm2 x), or the same of each token-wise part in turn; x where the block has none."""
    for part in block.token_wise:
        tokens = tokens + part.out(part.whole(part.norm(tokens)))
    return tokens


def _attention(block: BlockParts) -> AttentionParts:
    """Return the attention part. A block without one scores nothing, so callers check for it first."""
    if block.attention is None:
        raise ValueError("a block without an attention part")
    return block.attention
