"""Merging, and ToMe, in lowered models: the graph, its numbers, its variants, and parity on every runtime."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_OPSET17,
    OPENVINO,
    TARGETS,
    TENSORRT,
    Target,
)
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.verify.reference import check
from tests.core.lower.models import (
    WAYS,
    assert_agrees,
    lowered,
    operators_in,
    tome,
)
from tests.exhaustive import also
from tests.vits import random_images

MERGING = ("merge", "merge-weighted", "tome", "matching", "early")
FAMILIES = (
    "vit",
    "registers",
    "distilled",
    "qk norm",
    "lvvit",
    "eva02, joined, rotary",
)
TWO = (ONNXRUNTIME, TENSORRT)
THREE = pytest.mark.parametrize(
    "target", [ONNXRUNTIME, TENSORRT, ONNXRUNTIME_OPSET17], ids=lambda each: each.name
)


def images_of(pruned: PrunedViT, count: int = 16) -> np.ndarray:
    return random_images(pruned.vit, count).numpy()


def rows() -> Iterator[Any]:
    """A way, a family and a target: by survivors and in pairs for every target, other forms of both for two.

    `make test` takes pairs for every target, and every way and every family for one. The classes of a random
    network lie close together: INT8 has the plainest.
    """
    for way in MERGING:
        for target in TARGETS.values() if way in ("merge", "matching") else TWO:
            row = way, "vit" if target.quantization else "distilled", target
            first = target is ONNXRUNTIME or way == "matching"
            yield row if first or (way, target) == ("merge", TENSORRT) else also(*row)
    for family in FAMILIES:
        if family != "distilled":
            yield "tome", family, TENSORRT
            yield "merge", family, ONNXRUNTIME
            yield also("tome", family, OPENVINO)


@pytest.mark.ort
@pytest.mark.parametrize(
    ("way", "family", "target"), [*rows()], ids=lambda each: getattr(each, "name", each)
)
def test_it_merges_as_pytorch_does(way: str, family: str, target: Target) -> None:
    # of few images one is too many
    count = 48 if target.quantization else 16
    report = assert_agrees(WAYS[way](family), target, count)
    assert {"merges", "merge_indices", "kept_sets"} <= {
        each.name for each in report.checks
    }
    assert [layer.merge_agreement is not None for layer in report.layers] == [
        True
    ] * len(report.layers)


@THREE
@pytest.mark.parametrize("way", ["merge", "tome"])
def test_a_layer_that_merges_is_two_products_more(way: str, target: Target) -> None:
    pruned = WAYS[way]()
    model, layers = lowered(pruned, target), pruned.schedule.pruning_layers
    assert {node.domain for node in model.graph.node} == {""}
    operators = operators_in(model)
    counted = way == "tome" and "count_pairs" in target.passes
    assert operators["ArgMax"] == (0 if way == "tome" else len(layers))
    assert not counted or not {"TopK", "GatherElements"} & operators.keys()
    assert ("ScatterElements" in operators) == (way == "tome" and not counted)
    product = "products" if way == "tome" else "likeness"
    named = {node.name: node.op_type for node in model.graph.node}
    for layer in layers:
        assert (
            named[f"into_{layer:02d}/{product}"]
            == named[f"tokens_{layer:02d}/sum"]
            == "MatMul"
        )
    assert any("class_row" in name for name in named) == (way == "merge")
    # Every token meets every other: queries are as many as keys.
    assert not any(
        "taken_" in name for node in model.graph.node for name in node.output
    )


@pytest.mark.parametrize("way", MERGING)
def test_weighted_keys_are_a_mask_and_leave_the_score_short(way: str) -> None:
    """Behind the first layer that merges, attention and class row read the logarithm of the sizes."""
    nodes = lowered(WAYS[way]()).graph.node
    masked = [len(node.input) > 3 for node in nodes if node.op_type == "Attention"]
    assert masked == (
        [False] * 4 if way == "merge" else [way == "early", True, True, True]
    )
    # Of the sizes behind each layer that merges and is not the last; of scores none.
    logs = {"merge": 0, "merge-weighted": 2, "tome": 3, "matching": 2, "early": 3}
    assert [node.op_type for node in nodes].count("Log") == logs[way]


def join_others(model: onnx.ModelProto) -> None:
    """Give each patch the partner of another one."""
    (places,) = (
        tensor
        for tensor in model.graph.initializer
        if tensor.name == "into_02/partners/1"
    )
    turned = onnx.numpy_helper.to_array(places)[::-1]
    places.CopyFrom(onnx.numpy_helper.from_array(turned, places.name))


def keep_others(model: onnx.ModelProto) -> None:
    """Keep the patches that are most alike to their partners."""
    (largest,) = (
        attribute
        for attribute in node_named(model, "into_02/stay/by_score").attribute
        if attribute.name == "largest"
    )
    largest.i = 0


def reorder(model: onnx.ModelProto) -> None:
    """Let the second set's patches come first."""
    node = node_named(model, "into_02/kept")
    node.input[:] = list(node.input)[::-1]


def node_named(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """The node of that name."""
    return next(node for node in model.graph.node if node.name == name)


@pytest.mark.ort
@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (join_others, "merges"),
        (keep_others, "kept_sets"),
        (reorder, "kept_indices"),
    ],
    ids=["another partner", "others stay", "another order"],
)
def test_a_wrong_choice_fails_parity_and_is_named(
    change: Callable[[onnx.ModelProto], None], failed: str
) -> None:
    """Well formed, and no tie."""
    pruned = tome()
    model = lowered(pruned)
    change(model)
    report = check(pruned, model, images_of(pruned))
    assert next(each.name for each in report.checks if not each.passed) == failed
    if failed != "kept_indices":
        assert report.first_differing_layer == 2
