"""Compute each intra-layer factor (`exporter.schedule.factors`) of the patches that reach a layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from exporter.models.base import PrunableViT
from exporter.models.block import Seen
from exporter.models.pooling import AttentionPooling
from exporter.ops.class_row import class_row
from exporter.ops.dissimilarity import dissimilarity
from exporter.ops.received import received
from exporter.pruning.scores import intra_score
from exporter.pruning.tokens import Tokens
from exporter.schedule.factors import CLASS, PROBE, RECEIVED, SIMILARITY

__all__ = ["INTRA", "Layer"]


@dataclass(frozen=True)
class Layer:
    """What a layer's patches are scored from: its tokens after attention, and what this attention read.

    Every `stride`-th token is a query, where all tokens' attention is read.
    """

    vit: PrunableViT
    tokens: Tokens
    seen: Seen
    stride: int

    @property
    def prefix(self) -> int:
        """Tokens before the first patch."""
        return self.vit.spec.num_prefix_tokens


def class_attention(layer: Layer) -> Tensor:
    """Return the attention of the class tokens to each patch, [batch, patches]."""
    seen = layer.seen
    row = class_row(seen.query, seen.key, seen.scale, layer.vit.spec.num_class_tokens)
    if seen.key_bias is not None:
        row = row + seen.key_bias.unsqueeze(1)
    return intra_score(row, layer.prefix, layer.tokens.live)


def attention_received(layer: Layer) -> Tensor:
    """Return the mean attention that each patch receives from all tokens, [batch, patches]."""
    seen, live = layer.seen, layer.tokens.live
    bias = seen.key_bias
    if live is not None:
        bias = torch.zeros_like(live, dtype=torch.float32) if bias is None else bias
        bias = bias.masked_fill(~live, -torch.inf)
    return received(seen.query, seen.key, bias, seen.scale, layer.stride)[:, layer.prefix :]


def probe_attention(layer: Layer) -> Tensor:
    """Return the attention of the pooling's query to each patch, as if the layer were the last: [batch, patches].

    Its key projection reads tokens after the final norm, so the tokens between attention and MLP are normed by it.
    """
    pooling = layer.vit.pooling
    if not isinstance(pooling, AttentionPooling):
        raise TypeError(f"{layer.vit.spec.name} has no pooling by attention")
    patches = layer.tokens.normed(layer.vit)[:, layer.prefix :]
    live = None if layer.tokens.live is None else layer.tokens.live[:, layer.prefix :]
    return intra_score(pooling.probe(patches), 0, live)


def unlikeness(layer: Layer) -> Tensor:
    """Return 1 − the mean cosine of each patch's key and all patches', [batch, patches]."""
    return dissimilarity(layer.seen.key, layer.tokens.live, layer.prefix)


Compute: TypeAlias = Callable[[Layer], Tensor]

# By the factor's name.
INTRA: dict[str, Compute] = {
    CLASS.name: class_attention,
    RECEIVED.name: attention_received,
    PROBE.name: probe_attention,
    SIMILARITY.name: unlikeness,
}
