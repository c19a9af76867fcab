"""Merging, and ToMe, in lowered models: the graph, its numbers, its variants, and parity on every runtime."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_OPSET17,
    OPENVINO,
    TARGETS,
    TENSORRT,
    Target,
)
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import InputKind, Method
from exporter.core.lower.instrumented import forced_model, sliced_model, tracing_model
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.comparison import Models, compare, in_batches
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.core.verify.playback_runner import PlaybackRunner
from exporter.core.verify.reference import answers_of, check
from exporter.core.verify.tolerance import TOLERANCES
from exporter.serve.export_folder import read_reference, save_reference
from tests.core.lower.models import (
    WAYS,
    assert_agrees,
    lowered,
    merging,
    operators_in,
    run,
    star,
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


def test_scores_are_shortened_and_attention_is_fused_as_where_patches_go() -> None:
    merged, dropped = (operators_in(lowered(each)) for each in (merging(), star()))
    assert merged["Attention"] == dropped["Attention"] == 4
    assert merged["Log"] == dropped["Log"] == 0


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


@pytest.mark.parametrize(
    ("way", "scores"),
    [
        ("merge", ["directions", "likeness"]),
        *((way, ["cosine", "novelty"]) for way in ("tome", "matching")),
    ],
)
def test_who_joins_whom_stays_fp32(way: str, scores: list[str]) -> None:
    model = onnx.shape_inference.infer_shapes(lowered(WAYS[way](), ONNXRUNTIME_FP16))
    kinds = {
        value.name: value.type.tensor_type.elem_type for value in model.graph.value_info
    }
    for name in (
        "sizes_01",
        *(f"into_01/{score}" for score in scores),
    ):
        assert kinds[name] == onnx.TensorProto.FLOAT
    assert kinds["tokens_01"] == onnx.TensorProto.FLOAT16


@pytest.mark.ort
@pytest.mark.parametrize(
    ("way", "family", "target"),
    [
        ("merge", "vit", ONNXRUNTIME),
        ("tome", "distilled", ONNXRUNTIME),
        ("tome", "distilled", TENSORRT),
    ],
)
def test_forced_decisions_are_read(way: str, family: str, target: Target) -> None:
    pruned = WAYS[way](family)
    model, images = lowered(pruned, target), random_images(pruned.vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    feed = {
        f"keep_{layer:02d}": made.index.numpy()
        for layer, made in trace.decisions.items()
    }
    for layer, made in trace.decisions.items():
        assert made.into is not None
        feed[f"into_{layer:02d}"] = made.into.numpy()
    with OnnxRuntimeRunner(
        forced_model(model).SerializeToString(), name="forced"
    ) as runner:
        # Without rotary positions nothing reads who stays of pairs: whom each patch joins says it all.
        names = {info.name for info in runner.inputs} - {"images"}
        assert names <= set(feed) and (way == "tome" or names == set(feed))
        told = {name: feed[name] for name in names}
        forced = runner.run({"images": images.numpy(), **told})["logits"]
        other = {
            name: np.ascontiguousarray(value[::-1]) for name, value in told.items()
        }
        swapped = runner.run({"images": images.numpy(), **other})["logits"]
    np.testing.assert_allclose(forced, trace.logits.numpy(), atol=1e-4)
    assert np.abs(swapped - forced).max() > 1e-3


@pytest.mark.ort
@pytest.mark.parametrize(
    ("way", "target"),
    [
        *((way, ONNXRUNTIME) for way in MERGING),
        *(("tome", target) for target in (ONNXRUNTIME_FP16, TENSORRT)),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_the_sliced_model_chooses_and_merges_nothing(way: str, target: Target) -> None:
    sliced = sliced_model(lowered(WAYS[way](), target))
    assert not {"ArgMax", "TopK", "Equal"} & operators_in(sliced).keys()
    assert np.isfinite(run(sliced, images_of(merging(), 2))["logits"]).all()


@pytest.mark.ort
def test_a_recorded_reference_judges_merges_without_pytorch(tmp_path: Path) -> None:
    pruned, path = merging(), tmp_path / "reference.npz"
    model, images = lowered(pruned), images_of(pruned)
    answers = answers_of(pruned, images, InputKind.FLOAT32)
    save_reference({IMAGES: images, **answers}, path)
    recorded = PlaybackRunner(read_reference(path))
    assert {"into_01", "gap_01"} <= {info.name for info in recorded.outputs}
    variants = [tracing_model(model), forced_model(model)]
    tracing, forced = (
        OnnxRuntimeRunner(variant.SerializeToString()) for variant in variants
    )
    models = Models(
        recorded, OnnxRuntimeRunner(model.SerializeToString()), tracing, forced
    )
    report = compare(models, in_batches(images), TOLERANCES["fp32"])
    assert report.passed, report.checks


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


@pytest.mark.ort
@pytest.mark.parametrize(
    "target", [ONNXRUNTIME, also(ONNXRUNTIME_OPSET17)], ids=lambda target: target.name
)
@pytest.mark.parametrize(
    "rates", [{2: 0.6, 4: 0.7}, {2: 0.3, 4: 0.2}], ids=["most stay", "few stay"]
)
def test_star_may_pair_too(rates: dict[int, float], target: Target) -> None:
    """The scorer alone: rates of a schedule by hand, plain attention; and fewer than every second patch stays."""
    vit = merging().vit
    settings = Prune("pairs", method=Method.STAR, reduce="merge")
    pruned = PrunedViT(vit, manual_schedule(vit.spec, rates, resolve(settings))).eval()
    assert_agrees(pruned, target)
