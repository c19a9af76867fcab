"""One forward pass of a ViT that keeps every value a backward pass reads."""

import copy
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from exporter.core.vit.protocol import AttentionParts, BlockParts, MlpParts, PrunableViT

# Axes: b images, t tokens, d channels, h heads, c channels of a head.
TokenValues: TypeAlias = Float[Tensor, "b t d"]
HeadValues: TypeAlias = Float[Tensor, "b h t c"]


@dataclass(frozen=True)
class AttentionTrace:
    """Values of a block's attention part, computed from `tokens`; `branch` is added to them.

    `query` and `key` are those after their norms and any rotation, `raw_query` and `raw_key` those before both,
    `normed_query` and `normed_key` those between. No matrix [tokens, tokens] is kept: `attention` computes it
    again, piece by piece.
    """

    tokens: TokenValues
    normed: TokenValues
    raw_query: HeadValues
    raw_key: HeadValues
    normed_query: HeadValues
    normed_key: HeadValues
    query: HeadValues
    key: HeadValues
    value: HeadValues
    context: HeadValues
    merged: TokenValues
    proj_input: TokenValues
    proj_output: TokenValues
    branch: TokenValues


@dataclass(frozen=True)
class MlpTrace:
    """Values of a token-wise part; m hidden channels, and g after the activation, fewer where it is gated."""

    tokens: TokenValues
    normed: TokenValues
    hidden: Float[Tensor, "b t m"]
    activated: Float[Tensor, "b t g"]
    fc2_input: Float[Tensor, "b t g"]
    fc2_output: TokenValues
    branch: TokenValues


@dataclass(frozen=True)
class BlockTrace:
    """Values of one block, part by part: `attention` is None where the block lacks it."""

    attention: AttentionTrace | None
    token_wise: tuple[MlpTrace, ...]
    output: TokenValues


@dataclass(frozen=True)
class ModelTrace:
    """Values of the whole pass: its blocks, the tokens after the final norm, and the logits."""

    blocks: tuple[BlockTrace, ...]
    normed: TokenValues
    logits: Float[Tensor, "b classes"]


def in_dtype(vit: PrunableViT, dtype: torch.dtype) -> PrunableViT:
    """Return the ViT itself where its weights have this dtype, else a converted copy; never convert in place."""
    if next(vit.model.parameters()).dtype == dtype:
        return vit
    # The adapter is copied with its model, so that its parts are the copy's modules.
    converted = copy.deepcopy(vit)
    converted.model.to(dtype)
    return converted


@torch.no_grad()
def trace(vit: PrunableViT, images: Float[Tensor, "b 3 height width"]) -> ModelTrace:
    """Run the unpruned ViT on preprocessed images, in the dtype and on the device of its weights."""
    like = next(vit.model.parameters())
    tokens = vit.embed(images.to(like))
    blocks = []
    for block in vit.blocks:
        blocks.append(_trace_block(block, tokens))
        tokens = blocks[-1].output
    normed = vit.norm(tokens)
    return ModelTrace(tuple(blocks), normed, vit.classify(normed))


def _trace_block(block: BlockParts, tokens: TokenValues) -> BlockTrace:
    attention = (
        None if block.attention is None else _trace_attention(block.attention, tokens)
    )
    tokens = tokens if attention is None else tokens + attention.branch
    token_wise = []
    for part in block.token_wise:
        token_wise.append(_trace_mlp(part, tokens))
        tokens = tokens + token_wise[-1].branch
    return BlockTrace(attention, tuple(token_wise), tokens)


def _trace_attention(part: AttentionParts, tokens: TokenValues) -> AttentionTrace:
    batch, count, _ = tokens.shape
    normed = part.norm(tokens)
    qkv = (
        part.qkv(normed)
        .reshape(batch, count, 3, part.num_heads, part.head_dim)
        .permute(2, 0, 3, 1, 4)
    )
    raw_query, raw_key, value = qkv.unbind(0)
    normed_query = part.q_norm(raw_query)
    normed_key = part.k_norm(raw_key)
    query = normed_query
    key = normed_key
    if part.rotary is not None:
        query = part.rotary(query)
        key = part.rotary(key)
    context = F.scaled_dot_product_attention(query, key, value)
    merged = context.transpose(1, 2).reshape(batch, count, -1)
    proj_input = part.context_norm(merged)
    proj_output = part.proj(proj_input)
    return AttentionTrace(
        tokens=tokens,
        normed=normed,
        raw_query=raw_query,
        raw_key=raw_key,
        normed_query=normed_query,
        normed_key=normed_key,
        query=query,
        key=key,
        value=value,
        context=context,
        merged=merged,
        proj_input=proj_input,
        proj_output=proj_output,
        branch=part.out(proj_output),
    )


def _trace_mlp(part: MlpParts, tokens: TokenValues) -> MlpTrace:
    normed = part.norm(tokens)
    hidden = part.fc1(normed)
    activated = part.act(hidden)
    fc2_input = part.hidden_norm(activated)
    fc2_output = part.fc2(fc2_input)
    return MlpTrace(
        tokens, normed, hidden, activated, fc2_input, fc2_output, part.out(fc2_output)
    )
