"""Where relevance and gradients start: from each class's logit, or an embedding's length, back to the tokens.

The head reads a class token, or the mean of the patches. A maximum or a pooling by attention has no rule here.
The length of an embedding e is its product with its own direction, e / |e|, which is also its gradient. So an
embedding is explained like the logit of one class, whose weights are that direction.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from exporter.calibration import rules
from exporter.calibration.backward import pull_back
from exporter.calibration.trace import ModelTrace
from exporter.models.base import PrunableViT
from exporter.models.parts import MeanPooling, Pooling
from exporter.vocabulary import OutputKind


def explainable(vit: PrunableViT) -> bool:
    """Whether the logits or the embedding are linear in class tokens, or in the mean of the patches."""
    pools = vit.pooling is None or type(vit.pooling) is MeanPooling
    return pools and bool(vit.classifiers or _embeds(vit))


def explained_outputs(vit: PrunableViT) -> int:
    """Return how many numbers can be explained: the classes, whatever its outputs are; of a tower, 1."""
    return 1 if _embeds(vit) or not vit.classifiers else vit.classifiers[0].linear.out_features


def top_outputs(vit: PrunableViT, seen: ModelTrace, count: int) -> Int[Tensor, "b k"]:
    """Return the classes with the largest logits, of equal ones the first; for an embedding, 0: its length."""
    if _embeds(vit):
        return torch.zeros(len(seen.logits), 1, dtype=torch.long, device=seen.logits.device)
    return seen.logits.sort(dim=1, descending=True, stable=True).indices[:, :count]


def share_of_outputs(vit: PrunableViT, like: Float[Tensor, "b k t"]) -> Float[Tensor, "b k t"]:
    """Return the share of each token in what the head reads, from which attention is rolled out."""
    share = torch.zeros_like(like)
    if vit.pooling is not None:
        share[..., vit.pooling.skipped :] = 1 / (share.shape[-1] - vit.pooling.skipped)
        return share
    tokens = [each.token for each in vit.classifiers if each.token is not None] or [0]
    for token in tokens:
        share[..., token] += 1 / len(tokens)
    return share


def gradient_of_outputs(
    vit: PrunableViT, seen: ModelTrace, classes: Int[Tensor, "b k"]
) -> Float[Tensor, "b k t d"]:
    """Return the gradient of the classes' logits, or of the length, with respect to the last block's output."""
    tokens, read = seen.blocks[-1].output, _read(vit, seen, classes)
    if vit.pooling is not None:
        pooling, [(_, weight)] = vit.pooling, read
        return pull_back(lambda output: vit.features(_mean(pooling, vit.norm(output))), tokens, weight)
    gradient = tokens.new_zeros(*classes.shape, *tokens.shape[1:])
    for token, weight in read:
        gradient[:, :, token] = weight / len(read)
    return pull_back(lambda output: vit.features(vit.norm(output)), tokens, gradient)


def cam_of_outputs(
    vit: PrunableViT, seen: ModelTrace, classes: Int[Tensor, "b k"]
) -> Float[Tensor, "b k t d"]:
    """Return the relevance at the last block's output, from 1 at each class's logit, or at the length."""
    read = _read(vit, seen, classes)
    if vit.pooling is not None:
        return _cam_of_mean(vit, vit.pooling, seen, read[0][1])
    features = vit.features(seen.normed)
    cam = seen.normed.new_zeros(*classes.shape, *seen.normed.shape[1:])
    for (token, weight), share in zip(read, _shares(vit, features, classes), strict=True):
        unit = rules.output_unit(features[:, token].unsqueeze(1), weight, share)
        cam[:, :, token] += rules.clone(unit, seen.normed[:, token].unsqueeze(1))
    return cam


def _shares(
    vit: PrunableViT, features: Float[Tensor, "b t d"], classes: Int[Tensor, "b k"]
) -> Float[Tensor, "readers b k"]:
    """Return the share of each averaged classifier's own logit in theirs, as of the terms of a sum."""
    if len(vit.classifiers) < 2:
        return features.new_ones(1, *classes.shape)
    terms = torch.stack(
        [
            each.linear(features[:, each.token]).gather(1, classes) / len(vit.classifiers)
            for each in vit.classifiers
        ]
    )
    return terms.abs() * rules.guarded_inverse(terms.abs().sum(0))


def _cam_of_mean(
    vit: PrunableViT, pooling: Pooling, seen: ModelTrace, weight: Float[Tensor, "b k d"]
) -> Float[Tensor, "b k t d"]:
    """Return the relevance of the patches and, 0, of the tokens that are not pooled."""
    patches = seen.normed[:, pooling.skipped :]
    pooled = vit.features(_mean(pooling, seen.normed)).unsqueeze(1)
    unit = rules.output_unit(pooled, weight, weight.new_ones(weight.shape[:2]))
    spread = rules.mean(unit, patches.unsqueeze(1))
    skipped = spread.new_zeros(*spread.shape[:2], pooling.skipped, spread.shape[-1])
    return torch.cat([skipped, spread], dim=2)


def _mean(pooling: Pooling, normed: Float[Tensor, "b t d"]) -> Float[Tensor, "b d"]:
    return pooling(normed, torch.ones_like(normed[..., 0]))


def _embeds(vit: PrunableViT) -> bool:
    """Whether the head gives an embedding; a projection, if there is one, is its only `classifier`."""
    return any(output.kind == OutputKind.EMBEDDING for output in vit.outputs)


def _read(
    vit: PrunableViT, seen: ModelTrace, classes: Int[Tensor, "b k"]
) -> list[tuple[int | None, Float[Tensor, "b k d"]]]:
    """Return each token that the head reads, None for the pooled patches, and the weights of what is explained."""
    if not _embeds(vit):
        return [(each.token, each.linear.weight[classes]) for each in vit.classifiers]
    direction = F.normalize(seen.logits, dim=-1)
    for projection in vit.classifiers:
        direction = direction @ projection.linear.weight
    return [(None if vit.pooling is not None else 0, direction.unsqueeze(1))]
