"""Propagate relevance and gradients back through attention, from its contexts to query, key and value.

A matrix [tokens, tokens] exists for a few heads or queries at a time: as in FlashAttention (Dao et al., 2022,
Algorithm 4), attention is computed again from query and key instead of being kept. Memory is O(tokens · dim), and
a tile stays in the processor's cache while it is read ten times.

Axes: n heads of all images, r queries of a tile, t tokens, c channels of a head, k classes, s signals. The signals
are the k relevances and then the k gradients: most products are the same for both, and are one matrix product.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from exporter.calibration import rules
from exporter.calibration.rules import HeadSignals, Rows
from exporter.calibration.trace import AttentionTrace

# Values of a tile's largest matrix, 8 MiB in float64; fixed, since it changes rounding.
TILE = 2**20


class QueryKeyValue(NamedTuple):
    """Relevance or gradients of a part's query, key and value, after norms and rotation."""

    query: HeadSignals
    key: HeadSignals
    value: HeadSignals


@dataclass(frozen=True)
class _Arriving:
    """Values of every head; `softmax` is the sum over keys of gradient x attention, by gradient · context."""

    query: Float[Tensor, "n t c"]
    key: Float[Tensor, "n t c"]
    value: Float[Tensor, "n t c"]
    signals: Float[Tensor, "n t s c"]
    softmax: Float[Tensor, "n t k 1"]
    row: Float[Tensor, "n k t"]


@dataclass(frozen=True)
class _Sums:
    """Sums over tiles: the rolled-out row, and the signals of query, key and value."""

    row: Float[Tensor, "n k t"]
    query: Float[Tensor, "n t s c"]
    key: Float[Tensor, "n s t c"]
    value: Float[Tensor, "n t s c"]


def propagate(
    seen: AttentionTrace, row: Rows, cam: HeadSignals, gradient: HeadSignals
) -> tuple[Rows, QueryKeyValue, QueryKeyValue]:
    """Propagate relevance (`cam`) and gradient of the heads' contexts.

    Returns:
        The row times the mean over heads of (gradient x relevance of attention)+, then the relevance and the
        gradients of query, key and value.
    """
    context = seen.context.unsqueeze(1)
    heads = seen.context.shape[1]
    signals = torch.cat((cam * rules.half_share(context), gradient), dim=1)
    arriving = _Arriving(
        seen.query.flatten(0, 1),
        seen.key.flatten(0, 1),
        seen.value.flatten(0, 1),
        signals=_joined(signals),
        softmax=_joined((gradient * context).sum(-1, keepdim=True)),
        row=row.repeat_interleave(heads, 0),
    )
    sums = _zeros(arriving)
    for head, queries in tiles(*arriving.signals.shape[:3]):
        _add_tile(sums, arriving, head, queries)
    query_cam, query_gradient = _split(sums.query, heads)
    key_cam, key_gradient = _split(sums.key.transpose(1, 2), heads)
    value_cam, value_gradient = _split(sums.value, heads)
    # The rule's last factor is the value itself, the same in every tile.
    cams = QueryKeyValue(
        query_cam.mul_(seen.query.unsqueeze(1)),
        key_cam.mul_(seen.key.unsqueeze(1)),
        value_cam.mul_(seen.value.unsqueeze(1)),
    )
    row = sums.row.unflatten(0, (-1, heads)).mean(1)
    return row, cams, QueryKeyValue(query_gradient, key_gradient, value_gradient)


def tiles(heads: int, tokens: int, signals: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of heads and of queries: as many whole heads as a tile holds, else queries of one head."""
    rows = max(1, TILE // (signals * tokens))
    step = max(1, rows // tokens)
    queries = min(rows, tokens)
    for head in range(0, heads, step):
        for query in range(0, tokens, queries):
            yield slice(head, head + step), slice(query, query + queries)


def _add_tile(sums: _Sums, arriving: _Arriving, head: slice, queries: slice) -> None:
    """Add what the attention of some heads and queries propagates; each matrix is [n, r, (s), t]."""
    query = arriving.query[head, queries]
    key = arriving.key[head]
    value = arriving.value[head]
    signals = arriving.signals[head, queries]
    scale = query.shape[-1] ** -0.5
    # The logits, attention and both propagated matrices live for this tile alone, in the processor's cache.
    products = query @ key.mT
    attention = (products * scale).softmax(-1)
    matrix = (signals.flatten(1, 2) @ value.mT).unflatten(1, signals.shape[1:3])
    # The relevance is still without its factor, attention; its product with the gradient gets it in `weight`.
    cam, gradient = matrix.chunk(2, dim=2)
    weight = (cam * gradient).clamp_(min=0).mul_(attention.unsqueeze(2))
    row = arriving.row[head, :, None, queries] @ weight.transpose(1, 2)
    sums.row[head] += row.squeeze(2)
    sums.value[head].flatten(2).baddbmm_(attention.mT, signals.flatten(2))
    # In place, through softmax: both now belong to the products of queries and keys.
    cam.mul_((attention * rules.half_share(products)).unsqueeze(2))
    gradient.sub_(arriving.softmax[head, queries])
    gradient.mul_((attention * scale).unsqueeze(2))
    sums.query[head, queries] = (matrix.flatten(1, 2) @ key).view_as(signals)
    sums.key[head].flatten(1, 2).baddbmm_(matrix.flatten(2).mT, query)


def _zeros(arriving: _Arriving) -> _Sums:
    signals = arriving.signals
    heads, tokens, count, channels = signals.shape
    return _Sums(
        row=torch.zeros_like(arriving.row),
        query=torch.zeros_like(signals),
        # A tile adds to the keys of one signal after the other.
        key=signals.new_zeros(heads, count, tokens, channels),
        value=torch.zeros_like(signals),
    )


def _joined(values: HeadSignals) -> Float[Tensor, "n t k c"]:
    return values.permute(0, 2, 3, 1, 4).flatten(0, 1).contiguous()


def _split(
    values: Float[Tensor, "n t s c"], heads: int
) -> tuple[HeadSignals, HeadSignals]:
    """Return the relevances and the gradients, which are views of one tensor."""
    by_image = values.unflatten(0, (-1, heads)).permute(0, 3, 1, 2, 4)
    cam, gradient = by_image.chunk(2, dim=1)
    return cam, gradient
