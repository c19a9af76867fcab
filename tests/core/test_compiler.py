"""The compiler on one page: from a ViT and an amount to a model that agrees with PyTorch."""

import pytest

import exporter
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.compiler import compile_vit
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from tests.vits import random_images


@pytest.mark.ort
@pytest.mark.parametrize("share", [None, 0.3])
def test_a_vit_and_an_amount_become_a_verified_model(
    tiny_vit: PrunableViT, share: float | None
) -> None:
    policy = None if share is None else resolve(Prune(mac_reduction=share))
    images = random_images(tiny_vit, 4).numpy()
    compiled = compile_vit(tiny_vit, policy, ONNXRUNTIME, images)
    assert compiled.parity.passed
    assert compiled.parity.images == len(images)
    assert compiled.pruned.schedule == compiled.schedule
    assert bool(compiled.schedule.pruning_layers) is (share is not None)


@pytest.mark.ort
def test_the_python_api_takes_the_same_way(tiny_vit: PrunableViT) -> None:
    images, how = random_images(tiny_vit, 4), exporter.Prune(mac_reduction=0.3)
    whole = exporter.compile_vit(tiny_vit, how, images)
    schedule = exporter.plan(tiny_vit, how)
    model = exporter.export(exporter.prune(tiny_vit, schedule))
    assert schedule == whole.schedule
    assert model.SerializeToString() == whole.model.SerializeToString()
    assert whole.parity.passed
