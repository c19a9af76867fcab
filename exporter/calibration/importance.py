"""Compute one image's inter-layer scores, averaged over its classes, and its ACS at every layer."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from torch import Tensor

from exporter.calibration.heads import top_outputs
from exporter.calibration.redundancy import average_cosine_similarity
from exporter.calibration.relevance import sweep
from exporter.calibration.trace import trace
from exporter.models.base import PrunableViT
from exporter.models.block import whole_block

__all__ = ["ImageScores", "acs_of_images", "average_over_classes", "normalise_rows", "scores_of_image"]


@dataclass(frozen=True)
class ImageScores:
    """One image's scores for a calibration.

    `inter` is [layers, patches]; it is 0 in a layer that is not `counted` [layers], where no class had a score.
    """

    acs: NDArray[np.float64]
    inter: NDArray[np.float64] | None = None
    counted: NDArray[np.bool_] | None = None
    empty_rows: int = 0


def scores_of_image(
    vit: PrunableViT, image: Float[Tensor, "1 3 height width"], classes: int, normalize: str
) -> ImageScores:
    """Explain the image by one pass forward and one back: its top classes, or embedding; ACS alone for 0."""
    seen = trace(vit, image)
    prefix = vit.spec.num_prefix_tokens
    acs = torch.cat([average_cosine_similarity(block.output, prefix) for block in seen.blocks]).cpu().numpy()
    if classes == 0:
        return ImageScores(acs)
    rows = sweep(vit, seen, top_outputs(vit, seen, classes))[0].to("cpu", torch.float64)
    inter, counted, empty_rows = average_over_classes(normalise_rows(rows, normalize))
    return ImageScores(acs, inter.numpy(), counted.numpy(), empty_rows)


@torch.inference_mode()
def acs_of_images(vit: PrunableViT, images: Float[Tensor, "b 3 height width"]) -> list[ImageScores]:
    """Compute ACS alone, by the model's plain forward pass over a few images, without the classifier."""
    like = next(vit.model.parameters())
    tokens = vit.embed(images.to(like))
    acs = []
    for block in vit.blocks:
        tokens = whole_block(block, tokens)
        acs.append(average_cosine_similarity(tokens, vit.spec.num_prefix_tokens))
    return [ImageScores(values) for values in torch.stack(acs, dim=1).cpu().numpy()]


def normalise_rows(
    scores: Float64[Tensor, "k layers patches"], how: str
) -> Float64[Tensor, "k layers patches"]:
    """Scale each row of scores by itself: "none", "sum" to a sum of 1, "minmax" to [0, 1]; see the settings."""
    if how == "sum":
        total = scores.sum(-1, keepdim=True)
        return scores / total.masked_fill(total == 0, 1)
    if how == "minmax":
        low, high = scores.aminmax(dim=-1, keepdim=True)
        return (scores - low) / (high - low).masked_fill(high == low, 1)
    return scores


def average_over_classes(
    scores: Float64[Tensor, "k layers patches"],
) -> tuple[Float64[Tensor, "layers patches"], Tensor, int]:
    """Return the mean over classes with a finite, positive score; the layers with such a class; rows left out."""
    good = scores.isfinite().all(-1) & (scores > 0).any(-1)
    classes = good.sum(0)
    total = torch.where(good.unsqueeze(-1), scores, 0).sum(0)
    return total / classes.clamp(min=1).unsqueeze(-1), classes > 0, int((~good).sum())
