"""A lowered model against PyTorch: it passes as it was lowered, and fails with another reference."""

import copy
from dataclasses import replace

import pytest

from exporter.core.base.targets import ONNXRUNTIME, TENSORRT, Target
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.verify.reference import check
from exporter.core.vit.protocol import PrunableViT
from tests.core.lower.models import lowered, star
from tests.vits import random_images


@pytest.mark.ort
@pytest.mark.parametrize(
    "target", [ONNXRUNTIME, TENSORRT], ids=lambda target: target.name
)
def test_a_distilled_model_is_scored_by_both_its_tokens(target: Target) -> None:
    """A file that reads the class token alone keeps other patches."""
    pruned = star("distilled", "intra")
    images = random_images(pruned.vit, 6).numpy()
    report = check(pruned, lowered(pruned, target), images, threads=1)
    assert report.passed, report.checks
    half = PrunedViT(scored_by_one(pruned.vit), pruned.schedule).eval()
    assert not check(half, lowered(pruned, target), images, threads=1).passed


def scored_by_one(vit: PrunableViT) -> PrunableViT:
    vit = copy.copy(vit)
    vit.spec = replace(vit.spec, num_class_tokens=1)
    return vit
