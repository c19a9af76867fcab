"""Inter-layer importance of one image: how much each patch, at each layer, matters to a class (STAR, Algorithm 2).

For each class, relevance and gradient of the logit are propagated from the logits to the first block's attention,
for all classes at once. An embedding has one class: its length stands for the logit. Each block's
attention A gives mean over heads of (gradient x relevance of A)+, plus the identity. The class token's row is
multiplied by these matrices from the last layer down: after layer l it is the class row of (I + A_L) ... (I + A_l),
the result of the published roll-out from layer l, in O(layers x tokens^2) for all l together. Where several tokens
classify, or the mean of the patches does, the mean of their rows is used, without the identity's own part: of a
patch it is the same for all. A part that a block lacks is replaced by its skip connection; where that is the
attention, the row does not change.

The rules amplify rounding: in float32, layers near the input can be off by tens of percent. Use float64.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from torch import Tensor

from exporter.calibration import attention, backward
from exporter.calibration.backward import top_outputs
from exporter.calibration.record import Doubles
from exporter.calibration.rules import Classes
from exporter.calibration.trace import ModelTrace, TokenValues, trace
from exporter.core.vit.protocol import PrunableViT, whole_block


@torch.no_grad()
def sweep(
    vit: PrunableViT, seen: ModelTrace, classes: Classes
) -> Float[Tensor, "b k layers patches"]:
    """Compute the relevance of every patch position at every layer to each of an image's classes.

    Args:
        vit: The unpruned ViT in eval mode; its dtype is that of all computation.
        seen: Its trace.
        classes: For each image the class indices to explain; 0 for an embedding.

    Returns:
        Scores >= 0; index l is layer l + 1. Prefix tokens are left out.
    """
    cam = backward.cam_of_outputs(vit, seen, classes)
    gradient = backward.gradient_of_outputs(vit, seen, classes)
    start = backward.share_of_outputs(vit, cam[..., 0])
    rolled = torch.zeros_like(start)
    scores = []
    for layer in reversed(range(len(seen.blocks))):
        block = vit.blocks[layer]
        here = seen.blocks[layer]
        token_wise = list(zip(block.token_wise, here.token_wise, strict=True))
        for mlp, inside in reversed(token_wise):
            gradient = backward.gradient_to_middle(mlp, inside, gradient)
            cam = backward.cam_to_middle(mlp, inside, cam)
        if block.attention is not None and here.attention is not None:
            part = block.attention
            inner = here.attention
            skip, context_cam = backward.cam_to_context(part, inner, cam)
            context_gradient = backward.gradient_to_context(part, inner, gradient)
            added, below, slopes = attention.propagate(
                inner, start + rolled, context_cam, context_gradient
            )
            rolled = rolled + added
            if layer > 0:  # nothing reads results below the first attention
                cam = backward.cam_to_block_input(part, inner, skip, below)
                gradient = backward.gradient_to_block_input(
                    part, inner, gradient, slopes
                )
        scores.append(rolled[..., vit.spec.num_prefix_tokens :])
    return torch.stack(scores[::-1], dim=2)


def average_cosine_similarity(
    tokens: TokenValues, num_prefix_tokens: int
) -> Float64[Tensor, " b"]:
    """Compute the mean cosine over all pairs of different patches of each image, in [-1, 1], without prefix tokens.

    Unit rows u make it O(patches x dim): the sum over pairs is (|sum of u|^2 - patches) / 2. The paper
    divides by another number of pairs, which changes nothing: rates depend on ACS only through ratios of
    differences. Its sum includes the class token, which does change ACS; the authors' code, followed here,
    leaves it out. A row of zeros has cosine 0 with every other. A single patch has no pair, and gets 0. The
    tokens are the output of a block of the unpruned model.
    """
    patches = tokens[:, num_prefix_tokens:].to(torch.float64)
    count = patches.shape[1]
    if count < 2:
        return patches.new_zeros(len(patches))
    length = torch.linalg.vector_norm(patches, dim=-1, keepdim=True)
    rows = (length > 0).sum((1, 2))
    scale = torch.where(length > 0, length, torch.inf).reciprocal_()
    # One product instead of unit rows: this runs after every block, and must cost little compared with it.
    unit_sum = scale.transpose(1, 2) @ patches
    return (unit_sum.square().sum((1, 2)) - rows) / (count * (count - 1))


@dataclass(frozen=True)
class ImageScores:
    """One image's scores for a calibration.

    `inter` is [layers, patches]; it is 0 in a layer that is not `counted` [layers], where no class had a score.
    """

    acs: Doubles
    inter: Doubles | None = None
    counted: NDArray[np.bool_] | None = None
    empty_rows: int = 0


def scores_of_image(
    vit: PrunableViT,
    image: Float[Tensor, "1 3 height width"],
    classes: int,
) -> ImageScores:
    """Explain the image by one pass forward and one back: its top classes, or its embedding."""
    seen = trace(vit, image)
    prefix = vit.spec.num_prefix_tokens
    acs = [average_cosine_similarity(block.output, prefix) for block in seen.blocks]
    (rows,) = sweep(vit, seen, top_outputs(vit, seen, classes))
    rows = rows.to("cpu", torch.float64)
    inter, counted, empty_rows = average_over_classes(rows)
    return ImageScores(
        torch.cat(acs).cpu().numpy(), inter.numpy(), counted.numpy(), empty_rows
    )


@torch.inference_mode()
def acs_of_images(
    vit: PrunableViT, images: Float[Tensor, "b 3 height width"]
) -> list[ImageScores]:
    """Compute ACS alone, by the model's plain forward pass over a few images, without the classifier."""
    like = next(vit.model.parameters())
    tokens = vit.embed(images.to(like))
    acs = []
    for block in vit.blocks:
        tokens = whole_block(block, tokens)
        acs.append(average_cosine_similarity(tokens, vit.spec.num_prefix_tokens))
    return [ImageScores(values) for values in torch.stack(acs, dim=1).cpu().numpy()]


def average_over_classes(
    scores: Float64[Tensor, "k layers patches"],
) -> tuple[Float64[Tensor, "layers patches"], Tensor, int]:
    """Return the mean over classes with a finite, positive score; the layers with such a class; rows left out."""
    good = scores.isfinite().all(-1) & (scores > 0).any(-1)
    classes = good.sum(0)
    total = torch.where(good.unsqueeze(-1), scores, 0).sum(0)
    mean = total / classes.clamp(min=1).unsqueeze(-1)
    return mean, classes > 0, int((~good).sum())
