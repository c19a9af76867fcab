"""The worked example of docs/models.md: an adapter of thirty lines does all that the built-in ones do."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import VisionTransformer

import exporter
from exporter.calibration.relevance import relevance
from exporter.models.base import PrunableViT
from exporter.models.block import attention_half, mlp_half
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.plan import ScheduleSettings, keep_everything, manual_schedule
from tests.vits import random_images

PAGE = Path(exporter.__file__).parent.parent / "docs" / "models.md"
CONFIG = {
    "interpolation": "bilinear",
    "mean": (0.5,) * 3,
    "std": (0.5,) * 3,
    "crop_pct": 1.0,
    "crop_mode": "center",
}


@pytest.fixture(scope="module")
def vit() -> PrunableViT:
    """The example's adapter around a small torchvision ViT of random weights."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    torch.manual_seed(0)
    model = VisionTransformer(
        image_size=32, patch_size=8, num_layers=4, num_heads=3, hidden_dim=48, mlp_dim=96, num_classes=7
    )
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.15)
    adapter: PrunableViT = names["TorchvisionViT"](model, "mine", CONFIG)
    return adapter


def test_its_parts_are_the_whole(vit: PrunableViT) -> None:
    images = random_images(vit, 3)
    with torch.inference_mode():
        tokens = vit.embed(images)
        for block in vit.blocks:
            half, _ = attention_half(block, tokens)
            tokens = mlp_half(block, half)
        torch.testing.assert_close(vit.classify(vit.norm(tokens)), vit.model(images), rtol=1e-5, atol=1e-6)
        assert torch.equal(PrunedViT(vit, keep_everything(vit.spec))(images), vit.model(images))


def test_relevance_runs(vit: PrunableViT) -> None:
    scores = relevance(vit, random_images(vit, 2), torch.tensor([[0, 1], [2, 3]]))
    assert scores.shape == (2, 2, 4, 16)
    assert (scores.sum(-1) > 0).all()


@pytest.mark.ort
def test_it_is_exported_and_agrees(vit: PrunableViT) -> None:
    schedule = manual_schedule(vit.spec, {1: 0.8, 3: 0.6}, ScheduleSettings("intra", reduce="drop"))
    pruned = exporter.prune(vit, schedule)
    model = exporter.export(pruned)
    assert exporter.check(pruned, model, random_images(vit, 8).numpy(), threads=1).passed
