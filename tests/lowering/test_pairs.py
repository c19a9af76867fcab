"""ToMe in lowered models: the graph, its numbers, its variants, and parity on every runtime there is."""

from collections import Counter

import numpy as np
import onnx
import pytest
import torch

from exporter.evaluation.parity.reference import check
from exporter.lowering.variants import forced_variant, sliced_variant, tracing_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.choice import why_not
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import manual_schedule
from exporter.schedule.prune import Prune
from exporter.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    OPENVINO,
    OPENVINO_INT8,
    TARGETS,
    TENSORRT,
    TENSORRT_8,
    Target,
)
from exporter.vocabulary import Method
from tests.exhaustive import also, mark_further
from tests.lowering.models import lowered, merging, run, tome
from tests.vits import random_images

FAMILIES = ("vit", "registers", "distilled", "qk norm", "lvvit", "eva02, joined, rotary")
EACH = [target for target in TARGETS.values() if Method.TOME in target.methods]
FIRST = (ONNXRUNTIME, OPENVINO_INT8, TENSORRT)


def images_of(pruned: PrunedViT, count: int = 16) -> np.ndarray:
    return random_images(pruned.vit, count).numpy()


@pytest.mark.ort
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", [ONNXRUNTIME, TENSORRT], ids=lambda target: target.name)
def test_onnx_runtime_pairs_as_pytorch_does(family: str, target: Target) -> None:
    pruned = tome(family)
    images = random_images(pruned.vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    results = run(tracing_variant(lowered(pruned, target)), images.numpy())
    logits = trace.logits.numpy()
    assert np.abs(results["logits"] - logits).max() < 1e-4 * logits.std() + 1e-6
    assert list(trace.decisions) == [1, 2, 3, 4]
    for layer, made in trace.decisions.items():
        np.testing.assert_array_equal(results[f"keep_{layer:02d}"], made.index)
        np.testing.assert_array_equal(results[f"into_{layer:02d}"], made.into)


@pytest.mark.ort
@pytest.mark.parametrize("target", mark_further(EACH, FIRST), ids=lambda target: target.name)
def test_parity_of_every_target(target: Target) -> None:
    """Those for TensorRT run on ONNX Runtime."""
    if target.runtime == "openvino" and (reason := why_not(target)):
        pytest.skip(reason)
    # The classes of a random network lie close together: in INT8, of few images one is too many.
    family, count = ("vit", 48) if target.quantization else ("registers", 16)
    pruned = tome(family)
    images = images_of(pruned, count)
    report = check(pruned, lowered(pruned, target, images=images if target.takes_ranges else None), images)
    assert report.passed, report.checks
    assert {"merges", "merge_indices", "kept_sets"} <= {each.name for each in report.checks}
    assert [layer.merge_agreement is not None for layer in report.layers] == [True] * 4


@pytest.mark.parametrize("family", mark_further(FAMILIES, ["eva02, joined, rotary"]))
def test_parity_on_openvino(family: str) -> None:
    if reason := why_not(OPENVINO):
        pytest.skip(reason)
    pruned = tome(family)
    report = check(pruned, lowered(pruned, OPENVINO), images_of(pruned), threads=1)
    assert report.passed, report.checks


@pytest.mark.parametrize("target", [ONNXRUNTIME, TENSORRT, TENSORRT_8], ids=lambda target: target.name)
def test_a_layer_that_pairs_has_no_class_row_and_takes_no_rows(target: Target) -> None:
    model = lowered(tome(), target)
    assert {node.domain for node in model.graph.node} == {""}
    operators = Counter(node.op_type for node in model.graph.node)
    counted = "count_pairs" in target.passes
    assert operators["ArgMax"] == (0 if counted else 4)
    assert not counted or not {"TopK", "GatherElements", "ScatterElements"} & operators.keys()
    assert not any("class_row" in node.name for node in model.graph.node)
    assert not any("taken_" in name for node in model.graph.node for name in node.output)
    named = {node.name: node.op_type for node in model.graph.node}
    for layer in (1, 2, 3, 4):
        product = f"into_{layer:02d}/{'products' if counted else 'cosine'}"
        assert named[product] == named[f"tokens_{layer:02d}/mean"] == "MatMul"


def test_attention_is_fused_and_weighs_keys_behind_the_first_merge() -> None:
    nodes = [node for node in lowered(tome()).graph.node if node.op_type == "Attention"]
    assert [len(node.input) > 3 for node in nodes] == [False, True, True, True]


def test_who_joins_whom_stays_fp32() -> None:
    model = onnx.shape_inference.infer_shapes(lowered(tome(), ONNXRUNTIME_FP16))
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    assert kinds["into_01/cosine"] == kinds["into_01/directions"] == onnx.TensorProto.FLOAT
    assert kinds["into_01/novelty"] == kinds["sizes_01"] == onnx.TensorProto.FLOAT
    assert kinds["tokens_01"] == onnx.TensorProto.FLOAT16


@pytest.mark.ort
@pytest.mark.parametrize("target", [ONNXRUNTIME, TENSORRT], ids=lambda target: target.name)
def test_forced_decisions_are_read(target: Target) -> None:
    pruned = tome("distilled")
    model, images = lowered(pruned, target), random_images(pruned.vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    feed = {f"keep_{layer:02d}": made.index.numpy() for layer, made in trace.decisions.items()}
    for layer, made in trace.decisions.items():
        assert made.into is not None
        feed[f"into_{layer:02d}"] = made.into.numpy()
    with OnnxRuntimeRunner(forced_variant(model).SerializeToString(), name="forced") as runner:
        # Without rotary positions nothing reads who stays: whom each patch joins says it all.
        assert {info.name for info in runner.inputs} - {"images"} <= set(feed)
        names = [info.name for info in runner.inputs if info.name != "images"]
        told = {name: feed[name] for name in names}
        forced = runner.run({"images": images.numpy(), **told})["logits"]
        other = {name: np.ascontiguousarray(value[::-1]) for name, value in told.items()}
        swapped = runner.run({"images": images.numpy(), **other})["logits"]
    np.testing.assert_allclose(forced, trace.logits.numpy(), atol=1e-4)
    assert np.abs(swapped - forced).max() > 1e-3


@pytest.mark.ort
@pytest.mark.parametrize("target", [ONNXRUNTIME, ONNXRUNTIME_FP16, TENSORRT], ids=lambda target: target.name)
def test_the_sliced_variant_pairs_and_merges_nothing(target: Target) -> None:
    sliced = sliced_variant(lowered(tome(), target))
    assert not {"ArgMax", "TopK", "Equal"} & {node.op_type for node in sliced.graph.node}
    assert np.isfinite(run(sliced, images_of(tome(), 2))["logits"]).all()


@pytest.mark.ort
@pytest.mark.parametrize(
    ("name", "operator", "failed"),
    [
        ("into_02/argmax", "ArgMin", "merges"),
        ("into_02/novelty", "Identity", "kept_sets"),
        ("into_02/kept", "reversed", "kept_indices"),
    ],
    ids=["another partner", "others stay", "another order"],
)
def test_a_wrong_choice_fails_parity_and_is_named(name: str, operator: str, failed: str) -> None:
    """Well formed, and no tie."""
    pruned = tome()
    model = lowered(pruned)
    (node,) = (each for each in model.graph.node if each.name == name)
    if operator == "reversed":
        first, second = node.input
        node.input[:] = [second, first]
    else:
        node.op_type = operator
    report = check(pruned, model, images_of(pruned))
    assert next(each.name for each in report.checks if not each.passed) == failed
    if failed != "kept_indices":
        assert report.first_differing_layer == 2


@pytest.mark.ort
@pytest.mark.parametrize("target", [ONNXRUNTIME, also(TENSORRT_8)], ids=lambda target: target.name)
@pytest.mark.parametrize("rates", [{2: 0.6, 4: 0.7}, {2: 0.3, 4: 0.2}], ids=["most stay", "few stay"])
def test_star_may_pair_too(rates: dict[int, float], target: Target) -> None:
    """The scorer alone: rates of a schedule by hand, plain attention; and fewer than every second patch stays."""
    vit = merging().vit
    settings = Prune("pairs", method=Method.STAR, reduce="merge")
    pruned = PrunedViT(vit, manual_schedule(vit.spec, rates, settings)).eval()
    report = check(pruned, lowered(pruned, target), images_of(pruned))
    assert report.passed, report.checks
