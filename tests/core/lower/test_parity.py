"""Every way to choose patches, lowered for every target, decides and computes as PyTorch does."""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_INT8,
    ONNXRUNTIME_OPSET17,
    OPENVINO,
    OPENVINO_BF16,
    OPENVINO_INT8,
    TENSORRT,
    TENSORRT_FP8,
    TENSORRT_FP16,
    TENSORRT_INT8,
    Target,
)
from tests.core.lower.models import FAMILIES, WAYS, assert_agrees, lowered, operators_in
from tests.exhaustive import also
from tests.versions import skip_untranslated

# Those of merging are in test_merging.py, those of models whose head reads no class token in test_pooled.py.
Row = tuple[str, str, Target]


def matrix() -> Iterator[Row]:
    """A way, a family and a target. What a family adds is in its blocks, which layouts and precisions share."""
    yield "dense", "vit", ONNXRUNTIME
    for family in FAMILIES:
        yield from ((way, family, ONNXRUNTIME) for way in ("star", "packed"))
        yield "star", family, TENSORRT
    yield from ((way, "vit", ONNXRUNTIME) for way in ("intra", "inter", "random"))
    for layout in ("shrinking", "padded"):
        for family in ("vit", "distilled", "eva02, joined, rotary", "lvvit"):
            yield layout, family, ONNXRUNTIME
        for target in (TENSORRT, TENSORRT_INT8, TENSORRT_FP16, ONNXRUNTIME_OPSET17):
            yield layout, "vit", target
    yield from ((way, "vit", ONNXRUNTIME_OPSET17) for way in ("star", "packed"))
    for way in ("star", "shrinking", "padded"):
        yield way, "vit", TENSORRT_FP8
    for target in (ONNXRUNTIME_FP16, ONNXRUNTIME_INT8):
        yield from ((layout, "vit", target) for layout in target.layouts)
    yield "star", "vit", ONNXRUNTIME_FP16
    yield "star", "vit", TENSORRT_FP16
    for target, family in zip(
        cycle((ONNXRUNTIME_FP16, TENSORRT_FP16)),
        ("vit", "registers", "qk norm", "dinov3", "lvvit"),
    ):
        yield "intra", family, target
    for way, target in (("star", OPENVINO), ("padded", OPENVINO_BF16)):
        for family in ("vit", "qk norm", "eva02, joined, rotary", "lvvit"):
            yield way, family, target
    yield "dense", "eva02, joined, rotary", OPENVINO_INT8


def rows() -> Iterator[Any]:
    """Of one family `make test` takes every way once and every target once, of others one way for two targets."""
    targets = set[Target]()
    for row in matrix():
        way, family, target = row
        if family == "vit":
            first = target is ONNXRUNTIME or target not in targets
            targets.add(target)
        else:
            first = way == "star" and target in (ONNXRUNTIME, TENSORRT)
        yield row if first else also(*row)


@pytest.mark.ort
@pytest.mark.parametrize(
    ("way", "family", "target"), [*rows()], ids=lambda each: getattr(each, "name", each)
)
def test_it_is_what_pytorch_computes(way: str, family: str, target: Target) -> None:
    without_bias = family in ("lvvit", "eva02, joined, rotary") and way in (
        "packed",
        "shrinking",
    )
    skip_untranslated("linear layers without a bias in this layout", used=without_bias)
    pruned = WAYS[way](family)
    report = assert_agrees(pruned, target, 64 if target.reduced else 16)
    assert len(report.layers) == len(pruned.schedule.pruning_layers)


@pytest.mark.parametrize(
    ("way", "target"),
    [("star", ONNXRUNTIME_OPSET17), ("packed", ONNXRUNTIME_OPSET17)],
    ids=lambda each: getattr(each, "name", each),
)
def test_a_file_of_opset_17_has_nothing_newer(way: str, target: Target) -> None:
    model = lowered(WAYS[way]("vit"), target)
    assert {opset.domain: opset.version for opset in model.opset_import}[""] == 17
    assert all(
        opset.version == 17 for body in model.functions for opset in body.opset_import
    )
    assert model.ir_version == 8
    assert "Attention" not in operators_in(model)
