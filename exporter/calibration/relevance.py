"""Inter-layer importance of one image: how much each patch, at each layer, matters to a class (STAR, Algorithm 2).

For each class, relevance and gradient of the logit are propagated from the logits to the first block's attention,
for all classes at once. An embedding has one class: its length stands for the logit (`heads`). Each block's
attention A gives mean over heads of (gradient x relevance of A)+, plus the identity. The class token's row is
multiplied by these matrices from the last layer down: after layer l it is the class row of (I + A_L) ... (I + A_l),
the result of the published roll-out from layer l, in O(layers x tokens^2) for all l together. Where several tokens
classify, or the mean of the patches does, the mean of their rows is used, without the identity's own part: of a
patch it is the same for all. A part that a block lacks is replaced by its skip connection; where that is the
attention, the row does not change.

The rules amplify rounding: in float32, layers near the input can be off by tens of percent. Use float64.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exporter.calibration import attention, cams, gradients, heads
from exporter.calibration.trace import Trace, in_dtype, trace
from exporter.models.base import PrunableViT

__all__ = ["relevance", "sweep"]


def relevance(
    vit: PrunableViT,
    images: Float[Tensor, "b 3 height width"],
    classes: Int[Tensor, "b k"],
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "b k layers patches"]:
    """Compute the relevance of every patch position at every layer to each of an image's classes.

    Args:
        vit: The unpruned ViT in eval mode. One of another dtype is copied, so convert it once (`in_dtype`)
            before calling this for many images.
        images: Preprocessed images.
        classes: For each image the class indices to explain; 0 for an embedding.
        dtype: The dtype of all computation.

    Returns:
        Scores >= 0 in `dtype`; index l is layer l + 1. Prefix tokens are left out.
    """
    vit = in_dtype(vit, dtype)
    return sweep(vit, trace(vit, images), classes.to(vit.device))


@torch.no_grad()
def sweep(vit: PrunableViT, seen: Trace, classes: Int[Tensor, "b k"]) -> Float[Tensor, "b k layers patches"]:
    """Compute `relevance` from a trace, with the ViT that was traced."""
    cam, gradient = heads.cam_of_outputs(vit, seen, classes), heads.gradient_of_outputs(vit, seen, classes)
    start = heads.share_of_outputs(vit, cam[..., 0])
    rolled, scores = torch.zeros_like(start), []
    for layer in reversed(range(len(seen.blocks))):
        block, here = vit.blocks[layer], seen.blocks[layer]
        for mlp, inside in zip(reversed(block.token_wise), reversed(here.token_wise), strict=True):
            gradient = gradients.to_middle(mlp, inside, gradient)
            cam = cams.to_middle(mlp, inside, cam)
        if block.attention is not None and here.attention is not None:
            part, inner = block.attention, here.attention
            skip, context_cam = cams.to_context(part, inner, cam)
            context_gradient = gradients.to_context(part, inner, gradient)
            added, below, slopes = attention.propagate(inner, start + rolled, context_cam, context_gradient)
            rolled = rolled + added
            if layer > 0:  # nothing reads results below the first attention
                cam = cams.to_block_input(part, inner, skip, below)
                gradient = gradients.to_block_input(part, inner, gradient, slopes)
        scores.append(rolled[..., vit.spec.num_prefix_tokens :])
    return torch.stack(scores[::-1], dim=2)
