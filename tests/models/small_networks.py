"""The network of a name with 4 narrow blocks, 16 patches and seeded random weights: of the same structure."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import torch
from torch import nn

from exporter.core.base.errors import ModelError
from exporter.core.base.records import ModelSpec
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.models.networks import create, source_of
from exporter.models.registry import adapt, describe
from exporter.models.request import ModelRequest

PATCHES_PER_SIDE = 4
CLASSES = 10
SHORT = {"depth": 4}
FINE = {"patch_size": 8}
NARROW = (
    {"embed_dim": 64, "num_heads": 4},
    {"embed_dim": 96, "num_heads": 4},
    # in place of a list with an entry for each block
    {"embed_dim": 64, "num_heads": 4, "num_kv_heads": 4},
)


def small(name: str, kwargs: Mapping[str, Any] | None = None) -> PrunableViT:
    """Return a small network of a name behind its adapter, with the kind of head that the name has.

    A stage of a convolutional stem keeps one of the units that repeat each other.

    Args:
        name: An accepted name.
        kwargs: Arguments of the network.

    Raises:
        ModelError: The network cannot be pruned, or not be built with 16 patches.
    """
    # Some families list their blocks one by one, and some stems and gated MLPs do not take any width.
    for depth, width, patch in product((SHORT, {}), (*NARROW, {}), (FINE, {})):
        with suppress(ModelError):
            return _built(name, {**(kwargs or {}), **depth, **width, **patch})
    return _built(name, dict(kwargs or {}))


def evenly_pruned(vit: PrunableViT) -> PrunedViT:
    """Keep 0.7 of the patches in each of the last three layers, with STAR."""
    layers = range(vit.spec.depth - 2, vit.spec.depth + 1)
    schedule = manual_schedule(
        vit.spec, dict.fromkeys(layers, 0.7), resolve(own_settings(vit.spec))
    )
    return PrunedViT(vit, schedule)


def own_settings(spec: ModelSpec, method: Method = Method.STAR) -> Prune:
    """Score by the class token, where the head reads one."""
    return Prune(
        "intra" if spec.num_class_tokens else "received", method=method, reduce="drop"
    )


def signature(vit: PrunableViT) -> str:
    """Return a digest that two networks share only if they have the same modules of the same shapes."""
    spec, pooling = vit.spec, vit.pooling
    attention = [block.attention for block in vit.blocks if block.attention is not None]
    rotaries = [part.rotary for part in attention]
    parts = (
        str(vit.model),
        [(name, tuple(value.shape)) for name, value in vit.model.state_dict().items()],
        [
            rotary and (tuple(rotary.table.shape), rotary.rotate_half)
            for rotary in rotaries
        ],
        (str(pooling), 0 if pooling is None else pooling.skipped),
        (spec.num_prefix_tokens, spec.num_class_tokens, spec.outputs),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _built(name: str, kwargs: dict[str, Any]) -> PrunableViT:
    spec = describe(ModelRequest(name, model_kwargs=kwargs)).spec
    stride = spec.preprocessing.input_size[1] // spec.grid[0]
    if stride != kwargs.get("patch_size", stride):
        raise ModelError(name, "patches of a feature map", "patches of the image")
    request = ModelRequest(
        name,
        num_classes=CLASSES if spec.num_classes else None,
        model_kwargs={**kwargs, "img_size": PATCHES_PER_SIDE * stride},
    )
    torch.manual_seed(0)
    model = create(source_of(request))
    _shorten_stages(model)
    _spread(model)
    return adapt(model, name)


def _shorten_stages(model: nn.Module) -> None:
    backbone = getattr(getattr(model, "patch_embed", None), "backbone", nn.Module())
    for stage in [
        part for part in backbone.modules() if isinstance(part, nn.Sequential)
    ]:
        shapes = [
            [tuple(value.shape) for value in unit.state_dict().values()]
            for unit in stage
        ]
        for index in reversed(range(1, len(stage))):
            if shapes[index] and shapes[index] == shapes[index - 1]:
                del stage[index]


def _spread(model: nn.Module) -> None:
    """Initialise weights so that activations keep their scale, and patches and classes differ.

    No norm, bias or factor of a branch equals another one: an adapter that mixes them up is seen.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            mean = 0.5 if "gamma" in name else 0.0 if "bias" in name else 1.0
            nn.init.normal_(parameter, mean, std=0.1)
        elif parameter.ndim in (2, 4):
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
        elif parameter.ndim > 2:
            nn.init.normal_(parameter, std=0.5)
