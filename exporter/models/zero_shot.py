"""Zero-shot classification: embeddings of the classes' texts, folded into one linear head of an image tower.

A pair of towers gives an image to the class whose text has the largest cosine with it (Radford et al., 2021, CLIP).
The length of the image's embedding is the same for all classes: without dividing by it, the classes keep their
order, and the projection and the products with the texts are one linear layer.
"""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from exporter.core.base.errors import CheckpointError, ModelError, reason_of
from exporter.core.base.npz import read_arrays
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit.timm_adapters import outputs_of

EXPECTED = "embeddings [classes, channels], and as many names, in an .npz"


@dataclass(frozen=True, eq=False)
class TextEmbeddings:
    """The names of classes, sorted, and the embeddings of their texts, [classes, channels] of length 1, float64."""

    names: tuple[str, ...]
    values: Tensor


def read_text_embeddings(path: Path) -> TextEmbeddings:
    """Read a file of text embeddings; classes are sorted by name, which is the order of folders of images.

    It is an .npz with the arrays `embeddings` and `names`.
    """
    try:
        arrays = read_arrays(path)
        values = arrays["embeddings"].astype(np.float64)
        names = [*map(str, arrays["names"].tolist())]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(path, reason_of(error), EXPECTED) from None
    if values.ndim != 2 or not len(names) == len(set(names)) == len(values) > 1:
        got = f"embeddings {list(values.shape)}, {len(set(names))} different names"
        raise CheckpointError(path, got, f"{EXPECTED}, two at least")
    lengths = np.linalg.norm(values, axis=-1, keepdims=True)
    order = sorted(range(len(names)), key=lambda place: names[place])
    directions = torch.from_numpy((values / lengths)[order])
    return TextEmbeddings(tuple(names[place] for place in order), directions)


def zero_shot(tower: nn.Module, texts: TextEmbeddings, name: str) -> nn.Module:
    """Return the tower as a classifier of these texts: a copy with another head, which shares the other weights.

    Its logits are the cosines times the length of the image's embedding.
    """
    is_timms = isinstance(tower, VisionTransformer | Eva)
    if not is_timms or outputs_of(tower)[0].kind != OutputKind.EMBEDDING:
        expected = "a tower that gives an embedding"
        raise ModelError(
            f"{name}: text embeddings", "a model that classifies", expected
        )
    classifier: Any = copy.copy(tower)
    classifier._modules = dict(tower._modules)
    head = classifier.head
    width = (
        head.out_features if isinstance(head, nn.Linear) else classifier.num_features
    )
    if texts.values.shape[1] != width:
        got = f"text embeddings of {texts.values.shape[1]} channels"
        raise ModelError(name, got, f"{width}, the channels of its embedding")
    classifier.head = _folded(head, texts.values, next(tower.parameters()))
    classifier.num_classes = len(texts.names)
    # What tells a projection from a classifier is that it has the size of the pretrained one.
    classifier.pretrained_cfg = {**(classifier.pretrained_cfg or {}), "num_classes": 0}
    return classifier


@torch.no_grad()
def _folded(head: nn.Module, texts: Tensor, like: Tensor) -> nn.Linear:
    weight = texts.to(like.device)
    bias = weight.new_zeros(len(texts))
    if isinstance(head, nn.Linear):
        if head.bias is not None:
            bias = weight @ head.bias.double()
        weight = weight @ head.weight.double()
    folded = nn.Linear(
        weight.shape[1], weight.shape[0], device=like.device, dtype=like.dtype
    )
    folded.weight.copy_(weight)
    folded.bias.copy_(bias)
    return folded
