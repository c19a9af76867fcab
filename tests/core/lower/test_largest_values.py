"""What fp16 cannot hold stays in fp32, and the file is right where it is computed in fp16."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from exporter.core.base.artefact import artefact_of
from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    TENSORRT_FP16,
    TENSORRT_INT8,
    Target,
)
from exporter.core.lower.largest_values import HIGHEST, largest_halves
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.verify.reference import check
from exporter.core.verify.tolerance import TOLERANCES
from exporter.models.registry import adapt
from tests.core.lower.graphs import FP16, FP32, kinds_of
from tests.core.lower.models import lowered, pruned_of, star
from tests.exhaustive import also
from tests.vits import make_model, random_images

OUTLIER = 3000

pytestmark = pytest.mark.ort


def in_a_channel(model: Any) -> None:
    """Give a channel of the tokens large values."""
    layer = model.blocks[1].mlp.fc2
    layer.weight[5] *= 8 * OUTLIER
    layer.bias[5] *= 8 * OUTLIER


def in_logits(model: Any) -> None:
    """Give attention large logits, where query and key are small enough for fp16."""
    layer = model.blocks[1].attn.qkv
    layer.weight[5] *= OUTLIER
    layer.weight[48 + 5] *= OUTLIER / 100


# Attention as one node, whose logits are no tensor, and in parts.
TARGETS = pytest.mark.parametrize(
    "target", [ONNXRUNTIME_FP16, TENSORRT_FP16], ids=lambda target: target.name
)


def planted(plant: Callable[[Any], None]) -> tuple[PrunedViT, np.ndarray]:
    model = make_model()
    with torch.no_grad():
        plant(model)
    pruned = pruned_of(adapt(model, name="tiny"))
    return pruned, random_images(pruned.vit, 8).numpy()


def computed_as_stated(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    """The logits by ONNX's reference, which computes in fp16 what is in fp16; ONNX Runtime's CPU does not."""
    (logits,) = ReferenceEvaluator(model).run(["logits"], {"images": images})
    return np.asarray(logits)


@pytest.mark.parametrize(
    ("plant", "target"),
    [
        (in_a_channel, ONNXRUNTIME_FP16),
        (in_logits, TENSORRT_FP16),
        also(in_a_channel, TENSORRT_FP16),
        also(in_logits, ONNXRUNTIME_FP16),
    ],
)
def test_outliers_overflow_unless_images_show_them(
    plant: Callable[[Any], None], target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    pruned, images = planted(plant)
    with torch.inference_mode():
        expected = pruned(torch.from_numpy(images)).numpy()

    unmeasured = lowered(pruned, target)
    with pytest.raises(RuntimeWarning, match="overflow"):
        computed_as_stated(unmeasured, images)
    report = check(pruned, unmeasured, images, threads=1)
    failed = [check.name for check in report.checks if not check.passed]
    assert "fp16_range" in failed and not report.passed

    measured = lowered(pruned, target, images=images)
    assert check(pruned, measured, images, threads=1).passed
    logits = computed_as_stated(measured, images)
    assert (
        abs(logits - expected).max()
        <= TOLERANCES["fp16"].logit_diff_per_std * expected.std()
    )
    assert max(largest_halves(measured, images).values()) <= HIGHEST
    # torch logs empty ones
    (line,) = [message for message in caplog.messages if message]
    assert line.startswith(f"{target.name}: nodes that stay in fp32")
    assert f": {len(artefact_of(measured).in_fp32)}, up to" in line


@TARGETS
def test_only_what_touches_large_values_is_in_fp32(target: Target) -> None:
    pruned, images = planted(in_logits)
    measured = lowered(pruned, target, images=images)
    names = artefact_of(measured).in_fp32
    assert names and all(name.startswith("context_02/") for name in names)
    kinds = kinds_of(measured)
    for node in measured.graph.node:
        if node.name in names:
            assert {kinds[name] for name in (*node.input, *node.output)} == {FP32}
    others = [
        node.output[0]
        for node in measured.graph.node
        if node.name.startswith("context_03")
    ]
    assert FP16 in {kinds[name] for name in others}


def test_pairs_in_fp32_have_no_cast_behind_them() -> None:
    pruned, images = planted(in_a_channel)
    measured = lowered(pruned, TENSORRT_INT8, images=images)
    assert artefact_of(measured).in_fp32
    casts = [node.input[0] for node in measured.graph.node if node.op_type == "Cast"]
    pairs = [
        node.output[0]
        for node in measured.graph.node
        if node.op_type == "DequantizeLinear"
    ]
    assert pairs
    assert set(pairs).isdisjoint(casts)


@pytest.mark.parametrize(
    "target",
    [ONNXRUNTIME, ONNXRUNTIME_FP16, TENSORRT_FP16],
    ids=lambda target: target.name,
)
def test_a_model_that_fits_is_lowered_as_without_images(target: Target) -> None:
    images = random_images(star().vit, 8).numpy()
    assert lowered(star(), target, images=images) == lowered(star(), target)
