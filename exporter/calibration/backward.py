"""Propagate relevance ("cam") and the gradient of a logit back through head and blocks, for all classes at once.

Both start from each class's logit, or an embedding's length. The head reads a class token, or the mean of the
patches; a maximum or a pooling by attention has no rule here. The length of an embedding e is its product with its
own direction, e / |e|, which is also its gradient: it is the logit of one class, whose weights are that direction.

The steps that the classes can share (weights, attention, the activation's derivative) are written by hand; norms
and scales, which are cheap and of any kind, use autograd. Axes as in `trace`, with k for classes.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.calibration import rules
from exporter.calibration.attention import QueryKeyValue
from exporter.calibration.rules import Classes, HeadSignals, Rows, TokenSignals
from exporter.calibration.trace import (
    AttentionTrace,
    HeadValues,
    MlpTrace,
    ModelTrace,
    TokenValues,
)
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit.parts import Gate, MeanPooling, Pooling, Rotary
from exporter.core.vit.protocol import AttentionParts, MlpParts, PrunableViT


def pull_back(
    function: Callable[[Tensor], Tensor],
    value: Float[Tensor, "b ..."],
    gradient: Float[Tensor, "b k ..."],
) -> Float[Tensor, "b k ..."]:
    """Return the gradient with respect to `value`, from that with respect to `function(value)`.

    `function` takes tensors [images, ...] and treats each image alone.
    """
    if isinstance(function, nn.Identity):
        return gradient
    with torch.enable_grad():
        images, classes = gradient.shape[:2]
        values = value.detach().unsqueeze(1).expand(-1, classes, *value.shape[1:])
        leaf = values.flatten(0, 1).requires_grad_()
        result = function(leaf)
        (result,) = torch.autograd.grad(result, leaf, gradient.flatten(0, 1))
    return result.unflatten(0, (images, classes))


def cam_to_middle(part: MlpParts, seen: MlpTrace, cam: TokenSignals) -> TokenSignals:
    """Propagate from the output of a token-wise part to its input, for the MLP the tokens after attention."""
    middle = seen.tokens.unsqueeze(1)
    skip, branch = rules.add(cam, middle, seen.branch.unsqueeze(1))
    if not isinstance(part.fc2, nn.Identity):
        branch = rules.linear(
            branch, seen.fc2_input.unsqueeze(1), _as_added(part.fc2.weight, part.out)
        )
    if isinstance(part.act, Gate):
        branch = rules.gate(branch)
    if not isinstance(part.fc1, nn.Identity):
        branch = rules.linear(branch, seen.normed.unsqueeze(1), part.fc1.weight)
    return rules.clone(skip.add_(branch), middle)


def cam_to_context(
    part: AttentionParts, seen: AttentionTrace, cam: TokenSignals
) -> tuple[TokenSignals, HeadSignals]:
    """Propagate from the tokens after attention to the skip connection and the heads' contexts."""
    skip, branch = rules.add(cam, seen.tokens.unsqueeze(1), seen.branch.unsqueeze(1))
    branch = rules.linear(
        branch, seen.proj_input.unsqueeze(1), _as_added(part.proj.weight, part.out)
    )
    return skip, _by_head(part, branch)


def cam_to_block_input(
    part: AttentionParts,
    seen: AttentionTrace,
    skip: TokenSignals,
    inside: QueryKeyValue,
) -> TokenSignals:
    """Propagate from the skip connection, and from query, key and value inside attention, to the block's input."""
    query, key, value = inside
    if part.rotary is not None:
        query = _unturned(part.rotary, query, seen.normed_query, seen.query)
        key = _unturned(part.rotary, key, seen.normed_key, seen.key)
    qkv = _as_projected(query, key, value)
    branch = rules.linear(qkv, seen.normed.unsqueeze(1), part.qkv.weight)
    return rules.clone(skip + branch, seen.tokens.unsqueeze(1))


def _by_head(part: AttentionParts, merged: TokenSignals) -> HeadSignals:
    heads = merged.unflatten(-1, (part.num_heads, part.head_dim))
    return heads.transpose(2, 3)


def _as_projected(
    query: HeadSignals, key: HeadSignals, value: HeadSignals
) -> Float[Tensor, "b k t three_d"]:
    """Return the three side by side, as the layer before attention gives them."""
    parts = torch.stack((query, key, value), dim=2)
    return parts.permute(0, 1, 4, 2, 3, 5).flatten(3)


def _as_added(weight: Float[Tensor, "o i"], out: nn.Module) -> Float[Tensor, "o i"]:
    """Return a linear layer's weight with the sign with which each of its outputs is added.

    LayerScale may be negative: the z+ rule then counts the other half of the products as agreeing. Its magnitude
    cancels in that rule.
    """
    ones = weight.new_ones(1, 1, weight.shape[0])
    return weight * out(ones).sign().reshape(-1, 1)


def _unturned(
    rotary: Rotary, cam: HeadSignals, value: HeadValues, turned: Tensor
) -> HeadSignals:
    return rules.rotation(
        cam,
        value.unsqueeze(1),
        turned.unsqueeze(1),
        lambda gradient: pull_back(rotary, value, gradient),
    )


def gradient_to_middle(
    part: MlpParts, seen: MlpTrace, gradient: TokenSignals
) -> TokenSignals:
    """Propagate from the output of a token-wise part to its input, for the MLP the tokens after attention."""
    branch = pull_back(part.out, seen.fc2_output, gradient)
    if not isinstance(part.fc2, nn.Identity):
        branch = branch @ part.fc2.weight
    branch = pull_back(part.hidden_norm, seen.activated, branch)
    if isinstance(part.act, Gate):
        branch = pull_back(part.act, seen.hidden, branch)
    else:
        branch *= _derivative(part.act, seen.hidden).unsqueeze(1)
    if not isinstance(part.fc1, nn.Identity):
        branch = branch @ part.fc1.weight
    return gradient + pull_back(part.norm, seen.tokens, branch)


def gradient_to_context(
    part: AttentionParts, seen: AttentionTrace, gradient: TokenSignals
) -> HeadSignals:
    """Propagate from the tokens after attention to the heads' contexts, attention @ value."""
    branch = pull_back(part.out, seen.proj_output, gradient) @ part.proj.weight
    branch = pull_back(part.context_norm, seen.merged, branch)
    return _by_head(part, branch)


def gradient_to_block_input(
    part: AttentionParts,
    seen: AttentionTrace,
    middle: TokenSignals,
    inside: QueryKeyValue,
) -> TokenSignals:
    """Propagate the gradients of the tokens after attention, and of query, key and value, to the block's input."""
    query, key, value = inside
    if part.rotary is not None:
        query = pull_back(part.rotary, seen.normed_query, query)
        key = pull_back(part.rotary, seen.normed_key, key)
    query = pull_back(part.q_norm, seen.raw_query, query)
    key = pull_back(part.k_norm, seen.raw_key, key)
    qkv = _as_projected(query, key, value)
    return middle + pull_back(part.norm, seen.tokens, qkv @ part.qkv.weight)


def _derivative(activation: nn.Module, value: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = value.detach().requires_grad_()
        (derivative,) = torch.autograd.grad(activation(leaf).sum(), leaf)
    return derivative


def explainable(vit: PrunableViT) -> bool:
    """Whether the logits or the embedding are linear in class tokens, or in the mean of the patches."""
    pools = vit.pooling is None or type(vit.pooling) is MeanPooling
    return pools and bool(vit.classifiers or _embeds(vit))


def explained_outputs(vit: PrunableViT) -> int:
    """Return how many numbers can be explained: the classes, whatever its outputs are; of a tower, 1."""
    if _embeds(vit) or not vit.classifiers:
        return 1
    return vit.classifiers[0].linear.out_features


def top_outputs(vit: PrunableViT, seen: ModelTrace, count: int) -> Classes:
    """Return the classes with the largest logits, of equal ones the first; for an embedding, 0: its length."""
    if _embeds(vit):
        return torch.zeros(
            len(seen.logits), 1, dtype=torch.long, device=seen.logits.device
        )
    return seen.logits.sort(dim=1, descending=True, stable=True).indices[:, :count]


def share_of_outputs(vit: PrunableViT, like: Rows) -> Rows:
    """Return the share of each token in what the head reads, from which attention is rolled out."""
    share = torch.zeros_like(like)
    if vit.pooling is not None:
        patches = share[..., vit.pooling.skipped :]
        patches.fill_(1 / patches.shape[-1])
        return share
    tokens = [head.token for head in vit.classifiers if head.token is not None] or [0]
    for token in tokens:
        share[..., token] += 1 / len(tokens)
    return share


def gradient_of_outputs(
    vit: PrunableViT, seen: ModelTrace, classes: Classes
) -> TokenSignals:
    """Return the gradient of the classes' logits, or of the length, with respect to the last block's output."""
    tokens = seen.blocks[-1].output
    read = _read(vit, seen, classes)
    if vit.pooling is not None:
        pooling, [(_, weight)] = vit.pooling, read
        return pull_back(
            lambda output: vit.features(_mean(pooling, vit.norm(output))),
            tokens,
            weight,
        )
    gradient = tokens.new_zeros(*classes.shape, *tokens.shape[1:])
    for token, weight in read:
        gradient[:, :, token] = weight / len(read)
    return pull_back(lambda output: vit.features(vit.norm(output)), tokens, gradient)


def cam_of_outputs(
    vit: PrunableViT, seen: ModelTrace, classes: Classes
) -> TokenSignals:
    """Return the relevance at the last block's output, from 1 at each class's logit, or at the length."""
    read = _read(vit, seen, classes)
    if vit.pooling is not None:
        return _cam_of_mean(vit, vit.pooling, seen, read[0][1])
    features = vit.features(seen.normed)
    cam = seen.normed.new_zeros(*classes.shape, *seen.normed.shape[1:])
    shares = _shares(vit, features, classes)
    for (token, weight), share in zip(read, shares, strict=True):
        feature = features[:, token].unsqueeze(1)
        normed = seen.normed[:, token].unsqueeze(1)
        unit = rules.output_unit(feature, weight, share)
        cam[:, :, token] += rules.clone(unit, normed)
    return cam


def _shares(
    vit: PrunableViT, features: TokenValues, classes: Classes
) -> Float[Tensor, "readers b k"]:
    """Return the share of each averaged classifier's own logit in theirs, as of the terms of a sum."""
    if len(vit.classifiers) < 2:
        return features.new_ones(1, *classes.shape)
    logits = []
    for classifier in vit.classifiers:
        logits.append(
            classifier.linear(features[:, classifier.token]).gather(1, classes)
        )
    terms = (torch.stack(logits) / len(vit.classifiers)).abs()
    return terms * rules.guarded_inverse(terms.sum(0))


def _cam_of_mean(
    vit: PrunableViT, pooling: Pooling, seen: ModelTrace, weight: Float[Tensor, "b k d"]
) -> TokenSignals:
    """Return the relevance of the patches and, 0, of the tokens that are not pooled."""
    patches = seen.normed[:, pooling.skipped :]
    pooled = vit.features(_mean(pooling, seen.normed)).unsqueeze(1)
    unit = rules.output_unit(pooled, weight, weight.new_ones(weight.shape[:2]))
    spread = rules.mean(unit, patches.unsqueeze(1))
    skipped = spread.new_zeros(*spread.shape[:2], pooling.skipped, spread.shape[-1])
    return torch.cat([skipped, spread], dim=2)


def _mean(pooling: Pooling, normed: TokenValues) -> Float[Tensor, "b d"]:
    return pooling(normed, torch.ones_like(normed[..., 0]))


def _embeds(vit: PrunableViT) -> bool:
    """Whether the head gives an embedding; a projection, if there is one, is its only `classifier`."""
    return any(output.kind == OutputKind.EMBEDDING for output in vit.outputs)


def _unit_free(vit: PrunableViT) -> list[Float[Tensor, "o d"]]:
    """Return the weights of the classifiers; those of each value at length 1: relevance is averaged over values."""
    weights = [head.linear.weight for head in vit.classifiers]
    if all(output.kind != OutputKind.VALUES for output in vit.outputs):
        return weights
    lengths = torch.stack(weights).norm(dim=(0, 2)).unsqueeze(1)
    lengths = lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
    return [weight / lengths for weight in weights]


def _read(
    vit: PrunableViT, seen: ModelTrace, classes: Classes
) -> list[tuple[int | None, Float[Tensor, "b k d"]]]:
    """Return each token that the head reads, None for the pooled patches, and the weights of what is explained."""
    if not _embeds(vit):
        weights = _unit_free(vit)
        return [
            (head.token, weight[classes])
            for head, weight in zip(vit.classifiers, weights, strict=True)
        ]
    direction = F.normalize(seen.logits, dim=-1)
    for projection in vit.classifiers:
        direction = direction @ projection.linear.weight
    return [(None if vit.pooling is not None else 0, direction.unsqueeze(1))]
