"""Merging in lowered models: the graph, its numbers, its variants, and parity on every runtime there is."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from exporter.evaluation.parity import BATCHES, compare, in_batches, tolerance_for
from exporter.evaluation.parity.reference import check, reference_runner
from exporter.lowering.variants import forced_variant, sliced_variant, tracing_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.choice import why_not
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.runtimes.playback_runner import PlaybackRunner
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_FP16, OPENVINO, TARGETS, TENSORRT, TENSORRT_8, Target
from exporter.vocabulary import Method
from exporter.workflows.folders.export_folder import read_reference, save_reference
from tests.exhaustive import also, first_of, mark_further
from tests.lowering.models import dense, lowered, merging, run, star
from tests.vits import random_images

FAMILIES = ("vit", "registers", "distilled", "lvvit", "eva02, joined, rotary")
REDUCTIONS = ("merge", "merge-weighted")
EACH = [target for target in TARGETS.values() if Method.STAR in target.methods]


def images_of(pruned: PrunedViT, count: int = 16) -> np.ndarray:
    return random_images(pruned.vit, count).numpy()


@pytest.mark.ort
@pytest.mark.parametrize("reduce", ["merge", also("merge-weighted")])
@pytest.mark.parametrize("family", FAMILIES)
def test_onnx_runtime_merges_as_pytorch_does(family: str, reduce: str) -> None:
    pruned = merging(family, reduce)
    images = random_images(pruned.vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    results = run(tracing_variant(lowered(pruned)), images.numpy())
    logits = trace.logits.numpy()
    assert np.abs(results["logits"] - logits).max() < 1e-4 * logits.std() + 1e-6
    for layer, made in trace.decisions.items():
        np.testing.assert_array_equal(results[f"keep_{layer:02d}"], made.index)
        np.testing.assert_array_equal(results[f"into_{layer:02d}"], made.into)


@pytest.mark.ort
@pytest.mark.parametrize("reduce", ["merge", also("merge-weighted")])
@pytest.mark.parametrize("target", first_of(EACH), ids=lambda target: target.name)
def test_parity_of_every_target(target: Target, reduce: str) -> None:
    """Those for TensorRT run on ONNX Runtime."""
    if target.runtime == "openvino" and (reason := why_not(target)):
        pytest.skip(reason)
    # The classes of a random network lie close together: in INT8, of few images one is too many.
    family, count = ("vit", 48) if target.quantization else ("registers", 16)
    pruned = merging(family, reduce)
    images = images_of(pruned, count)
    report = check(pruned, lowered(pruned, target, images=images if target.takes_ranges else None), images)
    assert report.passed, report.checks
    assert {"merges", "merge_indices"} <= {each.name for each in report.checks}
    assert [layer.merge_agreement is not None for layer in report.layers] == [True] * 3


@pytest.mark.parametrize("reduce", ["merge", also("merge-weighted")])
@pytest.mark.parametrize("family", mark_further(FAMILIES, ["eva02, joined, rotary"]))
def test_parity_on_openvino(family: str, reduce: str) -> None:
    if reason := why_not(OPENVINO):
        pytest.skip(reason)
    pruned = merging(family, reduce)
    report = check(pruned, lowered(pruned, OPENVINO), images_of(pruned), threads=1)
    assert report.passed, report.checks


@pytest.mark.parametrize("target", [ONNXRUNTIME, TENSORRT, TENSORRT_8], ids=lambda target: target.name)
def test_a_layer_that_merges_is_two_products_more_and_takes_no_rows_early(target: Target) -> None:
    model = lowered(merging(), target)
    assert {node.domain for node in model.graph.node} == {""}
    operators = Counter(node.op_type for node in model.graph.node)
    assert operators["ArgMax"] == 3
    assert "ScatterElements" not in operators
    named = {node.name: node.op_type for node in model.graph.node}
    for layer in (1, 2, 4):
        assert named[f"into_{layer:02d}/likeness"] == named[f"tokens_{layer:02d}/mean"] == "MatMul"
    # Every token meets every other: queries are as many as keys.
    assert not any("taken_" in name for node in model.graph.node for name in node.output)


def test_scores_are_shortened_and_attention_is_fused_as_where_patches_go() -> None:
    merged, dropped = (Counter(n.op_type for n in lowered(each).graph.node) for each in (merging(), star()))
    assert merged["Attention"] == dropped["Attention"] == 4
    assert merged["Log"] == dropped["Log"] == 0


def test_weighted_keys_are_a_mask_and_leave_the_score_short() -> None:
    """Behind the first layer that merges, attention and class row read the logarithm of the sizes."""
    weighted, merged = (lowered(merging(reduce=reduce)) for reduce in ("merge-weighted", "merge"))
    for model, masked in ((weighted, [False, True, True, True]), (merged, [False] * 4)):
        nodes = [node for node in model.graph.node if node.op_type == "Attention"]
        assert [len(node.input) > 3 for node in nodes] == masked
    logs = [node.op_type for node in weighted.graph.node].count("Log")
    assert logs == 2  # of the sizes behind layers 1 and 2; of scores none


def test_who_joins_whom_stays_fp32() -> None:
    model = onnx.shape_inference.infer_shapes(lowered(merging(), ONNXRUNTIME_FP16))
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    assert kinds["into_01/likeness"] == kinds["into_01/directions"] == onnx.TensorProto.FLOAT
    assert kinds["sizes_01"] == onnx.TensorProto.FLOAT
    assert kinds["tokens_01"] == onnx.TensorProto.FLOAT16


@pytest.mark.ort
def test_forced_decisions_are_read() -> None:
    pruned = merging()
    model, images = lowered(pruned), random_images(pruned.vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    layers = list(trace.decisions)
    feed = {f"keep_{layer:02d}": made.index.numpy() for layer, made in trace.decisions.items()}
    feed |= {
        f"into_{layer:02d}": made.into.numpy()
        for layer, made in trace.decisions.items()
        if made.into is not None
    }
    with OnnxRuntimeRunner(forced_variant(model).SerializeToString(), name="forced") as runner:
        assert {info.name for info in runner.inputs} == {"images", *feed}
        forced = runner.run({"images": images.numpy(), **feed})["logits"]
        other = {name: np.ascontiguousarray(value[::-1]) for name, value in feed.items()}
        swapped = runner.run({"images": images.numpy(), **other})["logits"]
    assert len(layers) == 3
    np.testing.assert_allclose(forced, trace.logits.numpy(), atol=1e-4)
    assert np.abs(swapped - forced).max() > 1e-3


@pytest.mark.ort
@pytest.mark.parametrize("target", [ONNXRUNTIME, ONNXRUNTIME_FP16, TENSORRT], ids=lambda target: target.name)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_the_sliced_variant_chooses_and_merges_nothing(target: Target, reduce: str) -> None:
    sliced = sliced_variant(lowered(merging(reduce=reduce), target))
    assert not {"ArgMax", "TopK", "Equal"} & {node.op_type for node in sliced.graph.node}
    assert np.isfinite(run(sliced, images_of(merging(), 2))["logits"]).all()


@pytest.mark.ort
def test_a_recorded_reference_judges_merges_without_pytorch(tmp_path: Path) -> None:
    pruned, path = merging(), tmp_path / "reference.npz"
    model, images = lowered(pruned), images_of(pruned)
    save_reference(reference_runner(pruned), reference_runner(dense()), images, path)
    recorded = PlaybackRunner(read_reference(path))
    assert {"into_01", "gap_01"} <= {info.name for info in recorded.outputs}
    variants = [tracing_variant(model), forced_variant(model)]
    tracing, forced = (OnnxRuntimeRunner(each.SerializeToString()) for each in variants)
    report = compare(
        recorded,
        OnnxRuntimeRunner(model.SerializeToString()),
        tracing=tracing,
        forced=forced,
        batches=in_batches(images, BATCHES),
        tolerance=tolerance_for("fp32", "fp32"),
    )
    assert report.passed, report.checks


@pytest.mark.ort
def test_a_wrong_choice_fails_parity_and_is_named() -> None:
    """Into the survivor that each patch resembles least: well formed, and no tie."""
    pruned = merging()
    model = lowered(pruned)
    for node in model.graph.node:
        if node.name == "into_02/likeness":
            wrong = node.output[0] = "into_02/wrong"
            model.graph.node.append(onnx.helper.make_node("Neg", [wrong], ["into_02/likeness"]))
    report = check(pruned, sorted_model(model), images_of(pruned))
    failed = [each.name for each in report.checks if not each.passed]
    assert failed[0] == "merges"
    assert report.first_differing_layer == 2


def sorted_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The last node moved to where its input is there."""
    nodes = list(model.graph.node)
    last = nodes.pop()
    place = next(i for i, node in enumerate(nodes) if last.input[0] in node.output)
    del model.graph.node[:]
    model.graph.node.extend([*nodes[: place + 1], last, *nodes[place + 1 :]])
    return model
