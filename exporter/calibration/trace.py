"""One forward pass of a ViT with everything kept that a sweep backwards through it reads."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exporter.models.base import BlockParts, PrunableViT

__all__ = ["BlockTrace", "Trace", "in_dtype", "trace"]


@dataclass(frozen=True)
class BlockTrace:
    """What one block computed; axes b images, t tokens, d channels, h heads, c channels of a head, m hidden.

    `query` and `key` are those after their norms and any rotation, `raw_query` and `raw_key` those before both,
    `normed_query` and `normed_key` those between. `products` are the
    unscaled dot products of query and key. The two branches are what is added to the residual stream. A gated MLP
    has fewer channels, g, after its activation than hidden ones.
    """

    tokens: Float[Tensor, "b t d"]
    normed1: Float[Tensor, "b t d"]
    raw_query: Float[Tensor, "b h t c"]
    raw_key: Float[Tensor, "b h t c"]
    normed_query: Float[Tensor, "b h t c"]
    normed_key: Float[Tensor, "b h t c"]
    query: Float[Tensor, "b h t c"]
    key: Float[Tensor, "b h t c"]
    value: Float[Tensor, "b h t c"]
    products: Float[Tensor, "b h t t"]
    attention: Float[Tensor, "b h t t"]
    context: Float[Tensor, "b h t c"]
    merged: Float[Tensor, "b t d"]
    proj_input: Float[Tensor, "b t d"]
    proj_output: Float[Tensor, "b t d"]
    attention_branch: Float[Tensor, "b t d"]
    middle: Float[Tensor, "b t d"]
    normed2: Float[Tensor, "b t d"]
    hidden: Float[Tensor, "b t m"]
    activated: Float[Tensor, "b t g"]
    fc2_input: Float[Tensor, "b t g"]
    fc2_output: Float[Tensor, "b t d"]
    mlp_branch: Float[Tensor, "b t d"]
    output: Float[Tensor, "b t d"]


@dataclass(frozen=True)
class Trace:
    """The whole pass: its blocks, the tokens after the final norm, and the logits."""

    blocks: tuple[BlockTrace, ...]
    normed: Float[Tensor, "b t d"]
    logits: Float[Tensor, "b classes"]


def in_dtype(vit: PrunableViT, dtype: torch.dtype) -> PrunableViT:
    """The ViT itself where its weights have this dtype, else a copy that does; the caller's is left as it is."""
    if next(vit.model.parameters()).dtype == dtype:
        return vit
    # The adapter is copied with its model, so that its parts are the copy's modules.
    converted = copy.deepcopy(vit)
    converted.model.to(dtype)
    return converted


@torch.no_grad()
def trace(vit: PrunableViT, images: Float[Tensor, "b 3 height width"]) -> Trace:
    """Run the unpruned ViT on preprocessed images, in the dtype and on the device of its weights."""
    like = next(vit.model.parameters())
    tokens = vit.embed(images.to(like))
    blocks = []
    for block in vit.blocks:
        blocks.append(_trace_block(block, tokens))
        tokens = blocks[-1].output
    normed = vit.norm(tokens)
    return Trace(tuple(blocks), normed, vit.classify(normed))


def _trace_block(block: BlockParts, tokens: Float[Tensor, "b t d"]) -> BlockTrace:
    batch, count, _ = tokens.shape
    normed1 = block.norm1(tokens)
    qkv = block.qkv(normed1).reshape(batch, count, 3, block.num_heads, block.head_dim).permute(2, 0, 3, 1, 4)
    raw_query, raw_key, value = qkv.unbind(0)
    normed_query, normed_key = block.q_norm(raw_query), block.k_norm(raw_key)
    query, key = (each if block.rotary is None else block.rotary(each) for each in (normed_query, normed_key))
    products = query @ key.transpose(-2, -1)
    attention = (products * block.head_dim**-0.5).softmax(-1)
    context = attention @ value
    merged = context.transpose(1, 2).reshape(batch, count, -1)
    proj_input = block.context_norm(merged)
    proj_output = block.proj(proj_input)
    attention_branch = block.attention_out(proj_output)
    middle = tokens + attention_branch
    normed2 = block.norm2(middle)
    hidden = block.fc1(normed2)
    activated = block.act(hidden)
    fc2_input = block.hidden_norm(activated)
    fc2_output = block.fc2(fc2_input)
    mlp_branch = block.mlp_out(fc2_output)
    return BlockTrace(
        tokens=tokens,
        normed1=normed1,
        raw_query=raw_query,
        raw_key=raw_key,
        normed_query=normed_query,
        normed_key=normed_key,
        query=query,
        key=key,
        value=value,
        products=products,
        attention=attention,
        context=context,
        merged=merged,
        proj_input=proj_input,
        proj_output=proj_output,
        attention_branch=attention_branch,
        middle=middle,
        normed2=normed2,
        hidden=hidden,
        activated=activated,
        fc2_input=fc2_input,
        fc2_output=fc2_output,
        mlp_branch=mlp_branch,
        output=middle + mlp_branch,
    )
