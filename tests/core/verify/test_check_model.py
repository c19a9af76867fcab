"""A lowered model against PyTorch: it passes as it was lowered, and fails with other weights."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from exporter.core.base.targets import ONNXRUNTIME, TARGETS, TENSORRT, Target
from exporter.core.lower.largest_values import largest_halves
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything
from exporter.core.verify.checks import FP16_MOST
from exporter.core.verify.reference import check
from exporter.core.vit.protocol import PrunableViT
from exporter.models.registry import adapt
from tests.core.lower.models import lowered, star
from tests.vits import make_model, random_images


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


@pytest.mark.ort
def test_with_another_head() -> None:
    pruned = star()
    model = lowered(pruned)
    head = next(
        tensor
        for tensor in model.graph.initializer
        if tensor.name.endswith("head.weight")
    )
    changed = onnx.numpy_helper.to_array(head) * np.float32(1.01)
    head.CopyFrom(onnx.numpy_helper.from_array(changed, head.name))
    report = check(pruned, model, random_images(pruned.vit, 4).numpy(), threads=1)
    assert not report.passed
    assert {each.name for each in report.checks if not each.passed} == {
        "logits",
        "forced_logits",
    }


@pytest.mark.ort
@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (3e5, False)])
def test_values_beyond_fp16_fail_where_they_are_computed_in_fp32(
    factor: float, fits: bool
) -> None:
    model: Any = make_model()
    with torch.no_grad():
        model.blocks[1].mlp.fc1.weight.mul_(factor)
        model.blocks[1].mlp.fc2.weight.mul_(1 / factor)
    vit = adapt(model)
    dense = PrunedViT(vit, keep_everything(vit.spec)).eval()
    images = random_images(vit, 4).numpy()
    largest = largest_halves(lowered(dense, TARGETS["tensorrt-fp16"]), images)
    assert (max(largest.values()) <= FP16_MOST) == fits
    report = check(dense, lowered(dense, TARGETS["tensorrt-fp16"]), images, threads=1)
    (in_range,) = [each for each in report.checks if each.name == "fp16_range"]
    assert in_range.passed == fits
    assert report.passed <= fits
    assert not largest_halves(lowered(dense, TENSORRT), images)
