"""How patches are scored: each intra-layer factor, and its fusion with inter-layer importance."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exporter.core.base.errors import ScheduleError
from exporter.core.base.records import ModelSpec, Schedule
from exporter.core.prune.ops.factors import class_row, dissimilarity, received
from exporter.core.prune.tokens import Tokens
from exporter.core.schedule.methods import (
    CLASS,
    PROBE,
    RECEIVED,
    SIMILARITY,
    scorer_named,
)
from exporter.core.vit.parts import AttentionPooling
from exporter.core.vit.protocol import PrunableViT, Seen

# The smallest score that counts: below it float32 logarithms meet subnormal numbers, which some runtimes flush.
# Attention is a share of 1; inter-layer scores have no unit, so theirs is the share of a layer's largest.
SCORE_FLOOR = 1e-30


def intra_score(
    rows: Float[Tensor, "b rows t"],
    num_prefix_tokens: int,
    live: Bool[Tensor, "b t"] | None = None,
) -> Float[Tensor, "b n"]:
    """Attention of a query to each patch: softmax over all tokens, mean over rows, prefix columns dropped.

    Args:
        rows: The attention logits, scaled: a row for each head, and for each token that classifies (two in a
            distilled DeiT).
        num_prefix_tokens: Tokens before the first patch.
        live: Which tokens are the image's own, None for all of them; the others are not attended to.
    """
    if live is not None:
        rows = rows.masked_fill(~live.unsqueeze(1), -torch.inf)
    return rows.float().softmax(dim=-1).mean(dim=1)[:, num_prefix_tokens:]


def log_fused(
    intra: Float[Tensor, "b n"] | None,
    weighted_log_inter: Float[Tensor, "... n"] | None,
    alpha: float,
) -> Float[Tensor, "... n"]:
    """alpha·log intra + (1 − alpha)·log inter, float32 (STAR, Eq. 4, up to a term that all patches share).

    A factor whose weight is 0 is not read and may be None.

    Args:
        intra: Intra-layer scores.
        weighted_log_inter: (1 − alpha)·log of the inter-layer scores, as `weigh_inter` gives it.
        alpha: Weight of the intra-layer score, in [0, 1].
    """
    if alpha == 0.0 and weighted_log_inter is not None:
        return weighted_log_inter
    if intra is None:
        raise ValueError(f"alpha={alpha} needs an intra-layer score")
    weighted_log_intra = alpha * intra.clamp_min(SCORE_FLOOR).log()
    if alpha == 1.0:
        return weighted_log_intra
    if weighted_log_inter is None:
        raise ValueError(f"alpha={alpha} needs an inter-layer score")
    return weighted_log_intra + weighted_log_inter


def weigh_inter(inter: Float[Tensor, "l n"], alpha: float) -> Float[Tensor, "l n"]:
    """(1 − alpha)·log inter, float32, at most 0: the table from which each layer gathers by patch position.

    Each layer's scores are divided by their largest, so that the exponential of a fused score stays in range. The
    floor comes after the division: the unit of the scores changes nothing.
    """
    logs = inter.double().clamp_min(torch.finfo(torch.float64).tiny).log()
    shares = (logs - logs.amax(dim=-1, keepdim=True)).clamp_min(math.log(SCORE_FLOOR))
    return ((1.0 - alpha) * shares).float()


def inter_table(
    spec: ModelSpec, schedule: Schedule, inter: np.ndarray | None
) -> Float[Tensor, "layers patches"]:
    """Return the inter-layer scores of a schedule; for the "random" baseline, seeded and the same for every image.

    Raises:
        ScheduleError: The calibration's scores are missing, or not one for each layer and patch.
    """
    shape = (spec.depth, spec.num_patches)
    if not scorer_named(schedule.scorer).calibrated:
        return torch.from_numpy(
            np.random.default_rng(schedule.seed).uniform(0.5, 1.0, shape)
        )
    if inter is None:
        raise ScheduleError(
            f"scorer {schedule.scorer}",
            "no inter-layer scores",
            "a calibration that holds them",
            "give --calibration FILE",
        )
    if inter.shape != shape:
        raise ScheduleError(
            "inter-layer scores",
            f"shape {list(inter.shape)}",
            f"{list(shape)}, layers × patches",
        )
    return torch.from_numpy(np.asarray(inter, dtype=np.float64))


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
    shares = received(seen.query, seen.key, bias, seen.scale, layer.stride)
    return shares[:, layer.prefix :]


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
FACTOR_SCORES: dict[str, Compute] = {
    CLASS.name: class_attention,
    RECEIVED.name: attention_received,
    PROBE.name: probe_attention,
    SIMILARITY.name: unlikeness,
}
