"""The TensorRT target, as far as ONNX Runtime and the graph can check it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from exporter.errors import ModelError
from exporter.evaluation.parity.check_model import check
from exporter.lowering import pipeline
from exporter.lowering.variant_files import save_variants
from exporter.lowering.variants import selection_nodes, sliced_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.tensorrt.plugin_library import calls_plugin
from exporter.targets import (
    TENSORRT,
    TENSORRT_8,
    TENSORRT_ATTENTION_FP16,
    TENSORRT_FP16,
    TENSORRT_INT8,
    TENSORRT_PACKED_FP16,
    TENSORRT_PLUGIN_FP16,
    Target,
)
from exporter.tensor_names import POOLING, TRACING, context_name
from exporter.vocabulary import Precision
from tests.exhaustive import also
from tests.lowering.graphs import FP16, kinds_of
from tests.lowering.models import FAMILIES, RATES, a_star, dense, lowered, merging, pruned_of, run, star
from tests.pruning.adaptive import varied_images
from tests.vits import random_images

# Of ONNX's operators, those that onnx-tensorrt's list of supported operators has and that a ViT needs.
NOT_FOR_TENSORRT = {"Attention", "ScatterND", "Loop", "If", "NonZero", "Compress"}


@pytest.mark.ort
@pytest.mark.parametrize("family", FAMILIES)
def test_onnx_runtime_computes_what_pytorch_does(family: str) -> None:
    pruned = star(family)
    images = random_images(pruned.vit, 2)
    with torch.inference_mode():
        expected = pruned(images).numpy()
    got = run(lowered(pruned, TENSORRT), images.numpy())["logits"]
    assert np.abs(got - expected).max() < 1e-4 * expected.std() + 1e-6


@pytest.mark.ort
@pytest.mark.parametrize("family", ["vit", "dinov2, gated mlp", "clip", "lvvit"])
def test_the_form_for_tensorrt_8(family: str) -> None:
    """The checker of ONNX knows what an operator of opset 17 was: `lower` ends with it."""
    pruned = star(family)
    model = lowered(pruned, TENSORRT_8)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]
    report = check(pruned, model, random_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks


def test_a_star_is_not_for_tensorrt_8() -> None:
    with pytest.raises(ModelError, match=r"target tensorrt8-fp32 \| got method a-star \| need star"):
        lowered(a_star(layout="padded"), TENSORRT_8)


@pytest.mark.parametrize(
    ("make", "most"), [(star, 13), (lambda: a_star(layout="padded"), 16)], ids=["star", "a-star"]
)
def test_more_than_its_top_k_returns_is_refused_before_the_export(
    make: Callable[[], PrunedViT], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STAR returns the survivors of a layer, a-STAR sorts all patches; the limit of 3840 made small."""
    monkeypatch.setattr(pipeline, "to_onnx", None)
    with pytest.raises(
        ModelError, match=rf"got a top-k of {most} patches \| need at most {most - 1}, the runtime"
    ):
        pipeline.lower(make(), replace(TENSORRT, largest_top_k=most - 1))
    with pytest.raises(TypeError, match="NoneType"):  # the next step is the export
        pipeline.lower(make(), replace(TENSORRT, largest_top_k=most))


@pytest.mark.ort
@pytest.mark.parametrize("layout", TENSORRT.layouts)
def test_parity_of_a_star(layout: str) -> None:
    pruned = a_star(layout=layout)
    report = check(pruned, lowered(pruned, TENSORRT), varied_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks


@pytest.mark.ort
@pytest.mark.parametrize("layout", TENSORRT.layouts)
@pytest.mark.parametrize("target", [also(TENSORRT_FP16), TENSORRT_INT8], ids=lambda target: target.name)
def test_parity_of_a_star_in_lower_precision(target: Target, layout: str) -> None:
    pruned = a_star(layout=layout)
    images = varied_images(pruned.vit, 256).numpy()
    report = check(pruned, lowered(pruned, target, images=images), images)
    assert report.passed, report.checks


@pytest.mark.parametrize("make", [star, lambda: a_star(layout="padded")], ids=["star", "a-star"])
def test_the_graph_is_what_its_fusions_and_its_parser_want(make: Callable[[], PrunedViT]) -> None:
    model = lowered(make(), TENSORRT)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 20)]
    assert not model.functions
    assert not {node.op_type for node in model.graph.node} & NOT_FOR_TENSORRT
    by_name = {node.name: node for node in model.graph.node}
    for block in range(1, make().vit.spec.depth + 1):
        softmax = by_name[f"{context_name(block)}/softmax"]
        readers = [node.op_type for node in model.graph.node if softmax.output[0] in node.input]
        assert readers == ["MatMul"]
    for node in model.graph.node:
        if node.op_type == "TopK":
            attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
            assert attributes.get("sorted", 1) == 1


@pytest.mark.ort
@pytest.mark.parametrize(
    "make", [star, merging, *(lambda layout=layout: a_star(layout=layout) for layout in TENSORRT.layouts)]
)
def test_the_form_with_the_attention_node(make: Callable[[], PrunedViT]) -> None:
    pruned = make()
    model = lowered(pruned, TENSORRT_ATTENTION_FP16)
    assert [(each.domain, each.version) for each in model.opset_import if not each.domain] == [("", 23)]
    by_name = {node.name: node for node in model.graph.node}
    for block in range(1, pruned.vit.spec.depth + 1):
        node = by_name[f"{context_name(block)}/attention"]
        # TensorRT's parser takes no other attribute, and one output.
        assert [each.name for each in node.attribute] == ["scale"] and len(node.output) == 1
    report = check(pruned, model, varied_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks


@pytest.mark.ort
@pytest.mark.parametrize(
    ("make", "fewer"),
    [(star, 3), (lambda: star("distilled"), 3), (lambda: star("dinov3"), 3), (merging, 1)],
    ids=["vit", "two prefix tokens", "rotary", "merging"],
)
def test_the_form_with_the_selection_in_one_node(make: Callable[[], PrunedViT], fewer: int) -> None:
    """Positions may be read by the survivors, and merging reads no rows."""
    pruned = make()
    model, plain = lowered(pruned, TENSORRT_PLUGIN_FP16), lowered(pruned, TENSORRT_FP16)
    assert [(each.domain, each.name) for each in model.functions] == [("star", "SelectTopK")]
    assert [node.op_type for node in model.graph.node if node.domain] == ["SelectTopK"] * len(RATES)
    assert len(plain.graph.node) - len(model.graph.node) >= fewer * len(RATES)
    report = check(pruned, model, random_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks


@pytest.mark.parametrize("make", [star, merging], ids=["star", "merging"])
def test_a_selection_in_one_node_can_be_sliced_away(make: Callable[[], PrunedViT]) -> None:
    model, plain = (lowered(make(), target) for target in (TENSORRT_PLUGIN_FP16, TENSORRT_FP16))
    sliced = sliced_variant(model)
    assert {node.name for node in model.graph.node if node.domain} <= selection_nodes(model, sliced)
    operators = (
        Counter(node.op_type for node in each.graph.node) for each in (sliced, sliced_variant(plain))
    )
    assert next(operators) == next(operators)


@pytest.mark.parametrize(
    ("make", "calling"),
    [(star, {"", TRACING}), (lambda: pruned_of(star().vit, "pairs", "merge"), set()), (dense, set())],
    ids=["star", "pairs", "dense"],
)
def test_the_plugin_is_needed_where_a_node_calls_it(
    tmp_path: Path, make: Callable[[], PrunedViT], calling: set[str]
) -> None:
    """Pairs have no top-k, and the other variants do not choose."""
    path = tmp_path / "m.onnx"
    pipeline.save_onnx(lowered(make(), TENSORRT_PLUGIN_FP16), path)
    files = {"": path.name, **save_variants(path)}
    assert {role for role, name in files.items() if calls_plugin(tmp_path / name)} == calling


PACKED_FP32 = replace(TENSORRT_PACKED_FP16, precision=Precision.FP32, passes=TENSORRT_PACKED_FP16.passes[:-1])


@pytest.mark.ort
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_tokens_give_what_pytorch_computes(family: str) -> None:
    """In fp32, where nothing hides a wrong row: one image, and several that keep different numbers of patches."""
    pruned = a_star(family)
    images = varied_images(pruned.vit, 5)
    with torch.inference_mode():
        expected = pruned(images).numpy()
    model = lowered(pruned, PACKED_FP32)
    for batch in (images, images[:1], images[3:]):
        wanted = expected[:1] if len(batch) == 1 else expected[-len(batch) :]
        got = run(model, batch.numpy())["logits"]
        assert np.abs(got - wanted).max() < 1e-4 * expected.std() + 1e-6


@pytest.mark.ort
@pytest.mark.parametrize("family", ["vit", "distilled", "qk norm", "eva02, joined, rotary"])
def test_parity_of_packed_tokens(family: str) -> None:
    pruned = a_star(family)
    report = check(pruned, lowered(pruned, TENSORRT_PACKED_FP16), varied_images(pruned.vit, 64).numpy())
    assert report.passed, report.checks


def test_packed_tokens_attend_without_padding_or_mask() -> None:
    model, plain = lowered(a_star(), TENSORRT_PACKED_FP16), lowered(dense(), TENSORRT_FP16)
    assert {each.domain: each.version for each in model.opset_import} == {"": 20, "star": 1, "trt": 1}
    assert {each.name for each in model.functions} == {"CdfRetain", "TRT_Attention"}
    packed = [node for node in model.graph.node if node.domain == "trt"]
    assert [node.name for node in packed] == [f"{context_name(block)}/attention" for block in (2, 3, 4)]
    kinds, by_result = kinds_of(model), {name: node for node in model.graph.node for name in node.output}
    for node in packed:
        query, key, value, mask, *lengths = node.input
        assert {kinds[each] for each in (query, key, value, node.output[0])} == {FP16}
        assert [by_result[each].op_type for each in (query, key, value)] == ["Mul", "Reshape", "Reshape"]
        assert not mask
        # TensorRT is said to crash on one tensor in both places.
        assert len(set(lengths)) == 2 and {kinds[each] for each in lengths} == {onnx.TensorProto.INT32}
    operators = Counter(node.op_type for node in model.graph.node)
    # The block whose tokens are still whole is as in the dense model.
    assert operators["Softmax"] == 1 + len(RATES)
    assert [node.op_type for node in model.graph.node if node.name.startswith(context_name(1))] == [
        node.op_type for node in plain.graph.node if node.name.startswith(context_name(1))
    ]
    assert not operators.keys() & {"CumSum", "Attention", "ScatterND", "Loop", "If", "Compress"}


def test_packed_is_for_a_star_and_its_dense_model() -> None:
    assert not lowered(dense(), TENSORRT_PACKED_FP16).functions
    with pytest.raises(ModelError, match=r"tensorrt-packed-fp16 \| got method star \| need a-star"):
        lowered(star(), TENSORRT_PACKED_FP16)
    with pytest.raises(ModelError, match=r"tensorrt-packed-fp16 \| got layout padded \| need one of packed"):
        lowered(a_star(layout="padded"), TENSORRT_PACKED_FP16)


@pytest.mark.ort
def test_a_pooling_head_keeps_the_primitive_form() -> None:
    pruned = star("pooled by attention", "probe")
    model = lowered(pruned, TENSORRT_ATTENTION_FP16)
    names = {node.name: node.op_type for node in model.graph.node}
    assert names[f"{POOLING}/softmax"] == "Softmax"
    assert list(names.values()).count("Attention") == pruned.vit.spec.depth
    report = check(pruned, model, random_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks


def test_packed_is_not_for_other_targets() -> None:
    assert TENSORRT.layout(None) == "padded"
    with pytest.raises(ModelError, match="padded, shrinking"):
        TENSORRT.layout("packed")
