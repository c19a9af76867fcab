"""Where relevance and gradients start: from the logits of each class back through the head.

A classifier reads a class token, or the mean of the patches. A maximum or a pooling by attention has no rule here.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.calibration import rules
from exporter.calibration.gradients import pull_back
from exporter.calibration.trace import Trace
from exporter.models.base import PrunableViT
from exporter.models.pooling import MeanPooling, Pooling

__all__ = ["cam_of_logits", "explainable", "gradient_of_logits", "share_of_logits"]


def explainable(vit: PrunableViT) -> bool:
    """Whether the logits come from linear classifiers on class tokens, or on the mean of the patches."""
    pools = vit.pooling is None or type(vit.pooling) is MeanPooling
    return bool(vit.spec.num_classes and vit.classifiers and pools)


def share_of_logits(vit: PrunableViT, like: Float[Tensor, "b k t"]) -> Float[Tensor, "b k t"]:
    """Return the share of each token in what the classifiers read, from which attention is rolled out."""
    share = torch.zeros_like(like)
    if vit.pooling is not None:
        share[..., vit.pooling.skipped :] = 1 / (share.shape[-1] - vit.pooling.skipped)
    for token, _ in _on_tokens(vit):
        share[..., token] += 1 / len(vit.classifiers)
    return share


def gradient_of_logits(
    vit: PrunableViT, seen: Trace, classes: Int[Tensor, "b k"]
) -> Float[Tensor, "b k t d"]:
    """Return the gradient of the classes' logits with respect to the last block's output."""
    tokens = seen.blocks[-1].output
    if vit.pooling is not None:
        pooling, (classifier,) = vit.pooling, vit.classifiers
        gradient = classifier.linear.weight[classes]
        return pull_back(lambda output: vit.features(_mean(pooling, vit.norm(output))), tokens, gradient)
    gradient = tokens.new_zeros(*classes.shape, *tokens.shape[1:])
    for token, linear in _on_tokens(vit):
        gradient[:, :, token] = linear.weight[classes] / len(vit.classifiers)
    return pull_back(lambda output: vit.features(vit.norm(output)), tokens, gradient)


def cam_of_logits(vit: PrunableViT, seen: Trace, classes: Int[Tensor, "b k"]) -> Float[Tensor, "b k t d"]:
    """Return the relevance at the last block's output, from 1 at each class's logit.

    Several averaged classifiers each get the share of their own logit, like the terms of a sum.
    """
    if vit.pooling is not None:
        return _cam_of_mean(vit, vit.pooling, seen, classes)
    features = vit.features(seen.normed)
    terms = torch.stack(
        [
            linear(features[:, token]).gather(1, classes) / len(vit.classifiers)
            for token, linear in _on_tokens(vit)
        ]
    )
    shares = (
        terms.abs() * rules.guarded_inverse(terms.abs().sum(0)) if len(terms) > 1 else torch.ones_like(terms)
    )
    cam = seen.normed.new_zeros(*classes.shape, *seen.normed.shape[1:])
    for (token, linear), share in zip(_on_tokens(vit), shares, strict=True):
        unit = rules.output_unit(features[:, token].unsqueeze(1), linear.weight[classes], share)
        cam[:, :, token] += rules.clone(unit, seen.normed[:, token].unsqueeze(1))
    return cam


def _cam_of_mean(
    vit: PrunableViT, pooling: Pooling, seen: Trace, classes: Int[Tensor, "b k"]
) -> Float[Tensor, "b k t d"]:
    """Return the relevance of the patches and, 0, of the tokens that are not pooled."""
    patches, (classifier,) = seen.normed[:, pooling.skipped :], vit.classifiers
    pooled = vit.features(_mean(pooling, seen.normed)).unsqueeze(1)
    whole = seen.normed.new_ones(classes.shape)
    unit = rules.output_unit(pooled, classifier.linear.weight[classes], whole)
    spread = rules.mean(unit, patches.unsqueeze(1))
    skipped = spread.new_zeros(*spread.shape[:2], pooling.skipped, spread.shape[-1])
    return torch.cat([skipped, spread], dim=2)


def _mean(pooling: Pooling, normed: Float[Tensor, "b t d"]) -> Float[Tensor, "b d"]:
    return pooling(normed, torch.ones_like(normed[..., 0]))


def _on_tokens(vit: PrunableViT) -> list[tuple[int, torch.nn.Linear]]:
    """Return the classifiers that read a token, with the token."""
    return [(each.token, each.linear) for each in vit.classifiers if each.token is not None]
