"""Load ViTs whose checkpoint says which units were removed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from exporter.core.base.errors import ModelError
from exporter.core.vit.protocol import PrunableViT
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.models.border import check_border
from exporter.models.identity import read_record
from exporter.models.networks import create, source_of
from exporter.models.registry import adapted, describe, load, moved
from exporter.models.request import ModelRequest
from exporter.models.weights import load_into, read_state_dict

DEPTH = "depth"


@dataclass(frozen=True)
class Depth:
    """What a checkpoint's network lacks; `merged`: whether linear layers without an activation are one."""

    plan: DepthPlan
    merged: bool = True


def read_depth(path: Path | None) -> Depth | None:
    """Read what was removed from a checkpoint's network; None where nothing was."""
    return read_record(path, DEPTH, Depth)


def load_vit(request: ModelRequest, device: str = "cpu") -> PrunableViT:
    """Load a trained ViT as `exporter.models.registry.load` does, without the units that its checkpoint lacks."""
    depth = read_depth(request.checkpoint)
    if depth is None or request.checkpoint is None:
        return load(request, device)
    if request.text_embeddings is not None:
        got = "a checkpoint of depth pruning"
        expected = "the tower's own weights"
        raise ModelError("text embeddings", got, expected)
    source = source_of(request)
    network = create(source)
    state = read_state_dict(request.checkpoint)
    # An adapter may read weights when it is made, so those that the plan leaves alone are loaded before.
    weights = network.state_dict()
    for key, value in state.items():
        if key in weights and weights[key].shape == value.shape:
            weights[key] = value
    network.load_state_dict(weights)
    vit = adapted(network, request, source)
    vit = with_weights(vit, depth, state, str(request.checkpoint), source.requested)
    moved(vit.model, device)
    check_border(vit)
    return vit


def with_weights(
    vit: PrunableViT,
    depth: Depth,
    state: Mapping[str, Tensor],
    source: str,
    arguments: Collection[str] = (),
) -> PrunableViT:
    """Return the ViT without some units, with the weights of a file; arguments as of `load_into`."""
    pruned = apply_plan(vit, depth.plan, unmerged=not depth.merged)
    load_into(pruned.model, state, source, arguments)
    # Nothing more is removed; the digest is that of the loaded weights.
    return apply_plan(pruned, depth.plan, unmerged=not depth.merged)


def describe_vit(request: ModelRequest) -> PrunableViT:
    """Return the ViT's shape without weights, on the meta device."""
    depth = read_depth(request.checkpoint)
    vit = describe(request)
    return (
        vit if depth is None else apply_plan(vit, depth.plan, unmerged=not depth.merged)
    )
