"""One block taken apart: the attention half with the class-token row beside it, and the MLP half.

Together the halves compute, operation by operation, what the untouched block computes.
"""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from exporter.models.base import BlockParts
from exporter.models.class_row import class_row

__all__ = ["attention_half", "heads", "mlp_half", "whole_block"]


def whole_block(
    block: BlockParts, tokens: Float[Tensor, "b t d"], positions: Int[Tensor, "b n"] | None = None
) -> Float[Tensor, "b t d"]:
    """The untouched block, on patches that stand at `positions`: all of them where it is None."""
    if block.rotary is None:
        return block.whole(tokens)
    return block.whole(tokens, rope=block.rotary.at(positions))


def heads(
    block: BlockParts, normed: Float[Tensor, "b t d"], positions: Int[Tensor, "b n"] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value, each [batch, heads, tokens, head_dim], normed and turned; the scale is not in them."""
    batch, tokens, _ = normed.shape
    qkv = block.qkv(normed).reshape(batch, tokens, 3, block.num_heads, block.head_dim).permute(2, 0, 3, 1, 4)
    query, key, value = qkv.unbind(0)
    query, key = block.q_norm(query), block.k_norm(key)
    if block.rotary is not None:
        query, key = block.rotary(query, positions), block.rotary(key, positions)
    return query, key, value


def attention_half(
    block: BlockParts, tokens: Float[Tensor, "b t d"], positions: Int[Tensor, "b n"] | None = None
) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "b h t"]]:
    """The sum x + attn(norm1 x), and the class token's attention logits per head, scaled, before their softmax.

    The row costs O(tokens · dim) beside the fused attention; the attention's own probabilities are not
    asked for, so that every runtime may keep it fused. `positions` are those of the patches, None for all.
    """
    query, key, value = heads(block, block.norm1(tokens), positions)
    dropout = block.attention_dropout if block.whole.training else 0.0
    context = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    row = class_row(query, key, block.head_dim**-0.5)
    context = context.transpose(1, 2).reshape(tokens.shape[0], tokens.shape[1], -1)
    return tokens + block.attention_out(block.proj(block.context_norm(context))), row


def mlp_half(block: BlockParts, tokens: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
    """The sum x + mlp(norm2 x)."""
    return tokens + block.mlp_out(block.mlp(block.norm2(tokens)))
