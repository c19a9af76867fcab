"""DeiT models with random weights and schedules from published ACS; speed depends on the structure alone."""

from functools import cache
from pathlib import Path

import numpy as np
import timm
import torch
from torch import nn

from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.records import Schedule
from exporter.core.base.vocabulary import Layout, Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import (
    keep_everything,
    schedule_of,
    shape_schedule,
    star_schedule,
)
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.models.registry import adapt

# The authors' average cosine similarities, scaled to [0, 1] between the smallest and the largest. DeiT-T uses those
# of DeiT-S, with which docs/results.md was measured.
DEIT_S_ACS = (
    0.222,
    0.513,
    0.295,
    0.391,
    0.237,
    0.0,
    0.776,
    0.891,
    0.740,
    0.913,
    1.0,
    0.971,
)
_DEIT_B = (
    0.007,
    0.591,
    0.492,
    0.374,
    0.453,
    0.0,
    0.186,
    0.792,
    1.0,
    0.473,
    0.832,
    0.661,
)
_ACS = {
    "deit_tiny_patch16_224": DEIT_S_ACS,
    "deit_small_patch16_224": DEIT_S_ACS,
    "deit_base_patch16_224": _DEIT_B,
}
MODELS = tuple(_ACS)


@cache
def deit(name: str) -> PrunableViT:
    """Create the network of that name with seeded weights."""
    torch.manual_seed(0)
    return adapt(timm.create_model(name).eval(), name)


def schedule(
    name: str,
    rho: float,
    round_to: int = 1,
    method: Method = Method.STAR,
    *,
    scorer: str | None = None,
    reduce: str = "drop",
) -> Schedule:
    """Plan a schedule of the method, with token counts rounded up to a multiple of `round_to`."""
    policy = resolve(Prune(scorer, round_to=round_to, method=method, reduce=reduce))
    if policy.curve is None:
        return star_schedule(deit(name).spec, _ACS[name], rho, policy)
    return shape_schedule(deit(name).spec, rho, policy)


def prune(asked: Schedule, name: str, layout: Layout = Layout.SHRINKING) -> PrunedViT:
    """Create the pruned network; its inter-layer scores are noise. `layout` is that of a-STAR's tokens."""
    vit = deit(name)
    inter = np.random.default_rng(0).uniform(
        0.1, 1.0, (vit.spec.depth, vit.spec.num_patches)
    )
    return PrunedViT(vit, asked, inter, layout)


def saving(name: str, how: Prune) -> PrunedViT:
    """Create the network that saves a share of the MACs, `mac_reduction`, by a method."""
    return prune(schedule_of(resolve(how), deit(name).spec, acs=_ACS[name]), name)


def dense(name: str) -> PrunedViT:
    """Create the network that keeps all patches."""
    return PrunedViT(deit(name), keep_everything(deit(name).spec))


def torch_export(
    model: str, path: Path, opset: int, network: nn.Module | None = None
) -> None:
    """Export with PyTorch's exporter and a dynamic batch, without further passes; `network` in place of timm's."""
    vit = deit(model)
    program = torch.onnx.export(
        (network or vit.model).eval(),
        (torch.zeros(2, *vit.spec.preprocessing.input_size),),
        dynamo=True,
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch", max=2**31 - 1)},),
        opset_version=opset,
        verbose=False,
    )
    assert program is not None
    save_onnx(program.model_proto, path)
