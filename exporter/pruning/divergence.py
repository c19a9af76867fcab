"""How far a pruned model's answers are from the dense model's, image by image, without labels; and what lowers it.

The divergence of an image is the Kullback-Leibler divergence of its classes' chances from the dense model's (in
nats), or one minus the cosine of its embeddings.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from exporter.data.images import set_apart
from exporter.errors import ImageError, ScheduleError
from exporter.intervals import mean_interval
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Gain, Output
from exporter.vocabulary import OutputKind

# With fewer images to hold out, an interval says little.
LEAST_IMAGES = 32


def gain_of(without: np.ndarray, with_change: np.ndarray, read: int) -> Gain:
    """Compare the divergences of the same images, [images] each."""
    gains = without - with_change
    return Gain(
        float(without.mean()), float(gains.mean()), mean_interval(gains), read, len(gains)
    )


def held_out(
    images: Sequence[Tensor], what: str, share: float
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Divide batches of images [b, c, h, w] into those to read and a share that only says what is gained.

    The share is spread over all images (`exporter.data.images.set_apart`): a folder has them class by class.

    Raises:
        ImageError: There are fewer than `LEAST_IMAGES`; `what` needs them.
    """
    every = torch.cat(list(images))
    if len(every) < LEAST_IMAGES:
        raise ImageError(what, f"{len(every)} images", f"at least {LEAST_IMAGES}")
    rest, apart = set_apart(range(len(every)), share)
    size = len(images[0])
    return every[rest].split(size), every[apart].split(size)


def divergences(pruned: PrunedViT, right: Tensor, changed: Tensor) -> np.ndarray:
    """Return the divergence of each image, from the `answers` of the dense and of the pruned model."""
    if _output(pruned.vit).kind == OutputKind.EMBEDDING:
        return (1.0 - torch.cosine_similarity(right, changed, dim=-1)).double().numpy()
    log_chances = right.double().log_softmax(-1)
    excess = log_chances - changed.double().log_softmax(-1)
    return (log_chances.exp() * excess).sum(-1).numpy()


def answers(model: PrunedViT, images: Sequence[Tensor]) -> Tensor:
    """Return the logits, or the embeddings, of all images [images, channels], on the CPU.

    Raises:
        ScheduleError: The model gives neither.
    """
    name, device = _output(model.vit).name, model.vit.device
    with torch.inference_mode():
        rows = [model.trace(batch.to(device)).outputs[name].float().cpu() for batch in images]
    return torch.cat(rows)


def _output(vit: PrunableViT) -> Output:
    """Return the logits, or else the embedding."""
    for kind in (OutputKind.LOGITS, OutputKind.EMBEDDING):
        for output in vit.spec.outputs:
            if output.kind == kind:
                return output
    got = ", ".join(output.name for output in vit.spec.outputs)
    raise ScheduleError("divergence", f"the outputs {got}", "logits or an embedding")
