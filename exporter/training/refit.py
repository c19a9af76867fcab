"""Refit the last matrix of each attention and MLP to a schedule, without labels.

A merged token is not what its patches would have become, and a token of a pruned model has seen fewer others. Half
by half of each block, from first to last, ridge regression in closed form changes the matrix and its bias such that
each token leaves the half as the mean of the dense model's tokens that it stands for: the least-squares
reconstruction of He et al. (ICCV 2017, section 3.1), for tokens in place of channels. The network keeps its shape,
and its speed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from exporter.core.base.errors import ScheduleError
from exporter.core.base.records import ModelSpec
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.tokens import Grid
from exporter.core.vit.protocol import (
    BlockParts,
    MlpParts,
    Seen,
    attend,
    project,
)
from exporter.measure.loss import Gain
from exporter.training.divergence import Judges, gain_of

# The penalty on a change of a weight, as a multiple of the mean square of what the weights multiply.
RIDGE = 1.0
# Where 60 % is saved, to read an image takes as long as so many runs of the dense model; to judge by it, at most
# one for each model.
RUNS = 3
# A channel whose branch is scaled by less than this share of the largest scale is left as it is.
LEAST_FACTOR = 1e-2


def refit(
    pruned: PrunedViT,
    images: Sequence[Tensor],
    judges: Judges,
    on_progress: Callable[[int, int], object] | None = None,
) -> tuple[PrunedViT, Gain]:
    """Refit a copy of a pruned model, and measure what that gains on images which are not read for it.

    Return the copy, or the given model where no gain is shown, and that gain.

    Args:
        pruned: A model whose counts do not depend on the image; not changed.
        images: Batches of preprocessed images [b, c, h, w], without labels.
        judges: Other images.
        on_progress: Called with the work done and all of it, as `runs_to_refit` counts it.

    Raises:
        ScheduleError: The counts depend on the image, or the model gives neither logits nor an embedding.
    """
    if pruned.schedule.adaptive:
        raise ScheduleError(
            "refit",
            f"the method {pruned.schedule.method}",
            "one with the same counts for all images",
        )
    advance = on_progress or (lambda *_: None)
    read = sum(map(len, images))
    total = runs_to_refit(images, judges)
    copy = deepcopy(pruned).eval()
    with torch.no_grad():
        for layer in _blocks_refitted(pruned, copy, images):
            advance(RUNS * read * layer // pruned.vit.spec.depth, total)
    copy.refit_of = pruned.vit.weights_sha256
    before = judges.divergences(pruned)
    advance(total - len(judges), total)
    after = judges.divergences(copy)
    advance(total, total)
    gain = gain_of(before, after, read)
    return (copy if gain.shown else pruned), gain


def runs_to_refit(images: Sequence[Tensor], judges: Judges) -> int:
    """Return at most about how many images the dense model runs in the time of a refit."""
    return RUNS * sum(map(len, images)) + 2 * len(judges)


def bytes_of_image(spec: ModelSpec) -> int:
    """Return the memory of a preprocessed image."""
    return 4 * math.prod(spec.preprocessing.input_size)


def bytes_to_refit(spec: ModelSpec) -> int:
    """Return the memory that the tokens of one image take: of both models, and how they share them."""
    tokens = spec.num_prefix_tokens + spec.num_patches
    return 4 * tokens * (2 * spec.dim + tokens)


@dataclass(frozen=True)
class _Batch:
    """The tokens of one batch of images before a half of a block: the dense model's, and the pruned model's.

    The values of `shares` [b, s, t] say of which dense tokens each pruned one is the mean.
    """

    dense: Grid
    pruned: Grid
    shares: Grid


def _blocks_refitted(
    original: PrunedViT, copy: PrunedViT, images: Sequence[Tensor]
) -> Iterator[int]:
    """Refit the copy block by block; yield the number of blocks done."""
    spec, lone = copy.vit.spec, copy.schedule.lone_layer(copy.vit.spec)
    batches = [_embedded(copy, batch.to(copy.vit.device)) for batch in images]
    blocks = zip(original.vit.blocks, copy.vit.blocks, strict=True)
    for layer, (dense_block, block) in enumerate(blocks, start=1):
        rows = spec.read_tokens if layer == lone else None
        # In place, batch by batch: a second list would hold all tokens twice.
        if block.attention is not None:
            for place, batch in enumerate(batches):
                dense, _ = batch.dense.attention(dense_block)
                batches[place] = replace(batch, dense=dense)
            linear, out = block.attention.proj, block.attention.out
            lacking = _missing(linear, out, partial(_context, block), batches, rows)
            _fit(linear, out, lacking)
            for place, batch in enumerate(batches):
                pruned, seen = batch.pruned.attention(block)
                attended = replace(batch, pruned=pruned)
                batches[place] = _reduced(copy, layer, attended, seen)
        for place, batch in enumerate(batches):
            batches[place] = replace(batch, dense=batch.dense.mlp(dense_block))
        mlp = block.mlp
        if (
            mlp is not None
            and isinstance(mlp.fc2, nn.Linear)
            and block.stand_in is None
        ):
            linear, out = mlp.fc2, mlp.out
            lacking = _missing(linear, out, partial(_hidden, mlp), batches, rows)
            _fit(linear, out, lacking)
        for place, batch in enumerate(batches):
            batches[place] = replace(batch, pruned=batch.pruned.mlp(block))
        yield layer


def _embedded(model: PrunedViT, images: Tensor) -> _Batch:
    tokens = model.embedded(images)
    # At first each token is the mean of itself alone.
    identity = torch.eye(tokens.values.shape[1], device=images.device)
    shares = replace(tokens, values=identity.expand(len(images), -1, -1))
    batch = _Batch(replace(tokens, weighs_keys=False), tokens, shares)
    return _reduced(model, 0, batch, None)


def _reduced(model: PrunedViT, layer: int, batch: _Batch, seen: Seen | None) -> _Batch:
    """Return the tokens behind what a layer merges or drops, if anything."""
    if layer not in model.schedule.pruning_layers:
        return batch
    decision, _, _ = model.choose(layer, batch.pruned, seen)
    pruned, shares = batch.pruned.reduce(decision), batch.shares.reduce(decision)
    return replace(batch, pruned=pruned, shares=shares)


def _context(block: BlockParts, tokens: Grid) -> Tensor:
    """Return what the projection of an attention reads, [b, s, dim]."""
    assert block.attention is not None
    qkv = project(block, tokens.values)
    context, _ = attend(block, qkv, tokens.positions, tokens.live, tokens.key_bias)
    return block.attention.context_norm(context)


def _hidden(mlp: MlpParts, tokens: Grid) -> Tensor:
    """Return what the second matrix of an MLP reads, [b, s, hidden]."""
    return mlp.hidden_norm(mlp.act(mlp.fc1(mlp.norm(tokens.values))))


def _missing(
    linear: nn.Linear,
    out: nn.Module,
    read: Callable[[Grid], Tensor],
    batches: Sequence[_Batch],
    rows: int | None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what the last matrix of a half reads of each batch, and what the tokens behind the half lack.

    The dense tokens are those behind the half, the pruned ones those before it. Only the first `rows` of each image
    are yielded, None for all.
    """
    for batch in batches:
        inputs, wanted = read(batch.pruned), batch.shares.values @ batch.dense.values
        missing = wanted - batch.pruned.values - out(linear(inputs))
        yield inputs[:, :rows], missing[:, :rows]


def _fit(
    linear: nn.Linear, out: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]
) -> None:
    """Change a matrix and its bias, given what it reads [b, s, in] and what is missing behind `out` [b, s, dim]."""
    factor = out(torch.ones_like(linear.weight[:, 0]))
    scaled = factor.abs() > LEAST_FACTOR * factor.abs().max()
    width = linear.in_features + 1
    gram = torch.zeros(width, width, dtype=torch.float64, device=factor.device)
    cross = torch.zeros(
        width, linear.out_features, dtype=torch.float64, device=factor.device
    )
    for inputs, missing in batches:
        left = nn.functional.pad(inputs, (0, 1), value=1.0).flatten(0, 1)
        right = torch.where(scaled, missing / factor, 0.0).flatten(0, 1)
        gram += (left.T @ left).double()
        cross += (left.T @ right).double()
    gram.diagonal().add_(RIDGE * gram.diagonal().mean())
    change = torch.linalg.solve(gram, cross).to(linear.weight)
    linear.weight.add_(change[:-1].T)
    if linear.bias is not None:
        linear.bias.add_(change[-1])
