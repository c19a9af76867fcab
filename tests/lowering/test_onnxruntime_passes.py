"""The passes that make ONNX Runtime faster: what each leaves in the graph, and the same numbers."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
import torch
from torch import nn

from exporter.lowering.pipeline import lower
from exporter.lowering.twins import tracing_twin
from exporter.models.base import PrunableViT
from exporter.models.registry import adapt
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import ScheduleSettings, manual_schedule
from exporter.targets import ONNXRUNTIME
from tests.vits import FAMILIES, make_model, random_images

OPTIONAL = ("fold_attention_biases", "shorten_scores", "select_early", "unsorted_top_k", "linear_as_gemm")
RATES = {1: 0.8, 2: 0.7, 4: 0.5}


def biased_vit(family: str = "vit") -> PrunableViT:
    """Every bias of the network is seeded too: a pass that loses one changes the logits."""
    model = make_model(family)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.3)
    return adapt(model, name="tiny")


def pruned_of(vit: PrunableViT, scorer: str = "fused") -> PrunedViT:
    inter = np.random.default_rng(0).uniform(0.1, 1.0, (vit.spec.depth, vit.spec.num_patches))
    return PrunedViT(vit, manual_schedule(vit.spec, RATES, ScheduleSettings(scorer)), inter)


def without(*passes: str) -> tuple[str, ...]:
    return tuple(name for name in ONNXRUNTIME.passes if name not in passes)


def lowered(pruned: PrunedViT, *left_out: str) -> onnx.ModelProto:
    return lower(pruned, replace(ONNXRUNTIME, passes=without(*left_out)))


def run(model: onnx.ModelProto, images: np.ndarray) -> dict[str, np.ndarray]:
    with OnnxRuntimeRunner(model.SerializeToString(), name="lowered") as runner:
        return runner.run({"images": images})


@pytest.mark.ort
@pytest.mark.parametrize("family", FAMILIES)
def test_the_passes_change_no_decision_and_no_number(family: str) -> None:
    vit = biased_vit(family)
    pruned, images = pruned_of(vit), random_images(vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    results = run(tracing_twin(lowered(pruned)), images.numpy())
    logits = trace.logits.numpy()
    assert np.abs(results["logits"] - logits).max() < 1e-4 * logits.std() + 1e-6
    for layer, kept in trace.kept.items():
        np.testing.assert_array_equal(results[f"keep_{layer + 1:02d}"], kept.index.numpy())


@pytest.mark.ort
@pytest.mark.parametrize("left_out", OPTIONAL)
def test_each_pass_may_be_left_out(left_out: str) -> None:
    vit = biased_vit()
    pruned, images = pruned_of(vit), random_images(vit, 2).numpy()
    whole, less = (run(lowered(pruned, *names), images)["logits"] for names in ((), (left_out,)))
    np.testing.assert_allclose(whole, less, atol=1e-4 * whole.std() + 1e-6)


@pytest.mark.ort
@pytest.mark.parametrize("scorer", ["intra", "inter", "random"])
def test_every_scorer_decides_as_pytorch_does(scorer: str) -> None:
    vit = biased_vit()
    pruned, images = pruned_of(vit, scorer), random_images(vit, 2)
    with torch.inference_mode():
        trace = pruned.trace(images)
    results = run(tracing_twin(lowered(pruned)), images.numpy())
    for layer, kept in trace.kept.items():
        np.testing.assert_array_equal(results[f"keep_{layer + 1:02d}"], kept.index.numpy())


def test_only_the_query_keeps_a_bias_of_its_own() -> None:
    pruned = pruned_of(biased_vit())
    graph = gs.import_onnx(lowered(pruned, "linear_as_gemm"))
    for node in (node for node in graph.nodes if node.op == "Attention"):
        assert [tensor.inputs[0].op for tensor in node.inputs[1:]] == ["MatMul", "MatMul"]


def test_survivors_are_taken_before_their_queries_meet_the_keys() -> None:
    pruned = pruned_of(biased_vit())
    spec, keep = pruned.vit.spec, pruned.schedule.keep
    graph = gs.import_onnx(onnx.shape_inference.infer_shapes(lowered(pruned), data_prop=True))
    tensors = graph.tensors()
    for layer in (1, 2, 4):
        query, key, _ = tensors[f"context_{layer:02d}"].inputs[0].inputs
        before = (spec.num_patches, *keep)[layer - 1]
        assert query.shape == ["batch", spec.num_prefix_tokens + keep[layer - 1], spec.dim]
        assert key.shape == ["batch", spec.num_prefix_tokens + before, spec.dim]
        assert query.inputs[0].op == "GatherND"
        rows = tensors[f"keep_{layer:02d}/rows"]
        assert [reader.op for reader in rows.outputs] == ["GatherND"] * 2


def test_without_a_class_row_survivors_are_taken_before_their_projection() -> None:
    graph = gs.import_onnx(lowered(pruned_of(biased_vit(), "inter"), "linear_as_gemm"))
    query = graph.tensors()["context_01"].inputs[0].inputs[0]
    product = query.inputs[0].inputs[0]
    assert [query.inputs[0].op, product.inputs[0].op] == ["Add", "MatMul"]
    assert product.inputs[0].inputs[0].inputs[0].op == "GatherND"


def test_scores_need_no_weight_and_no_further_axis() -> None:
    pruned = pruned_of(biased_vit())
    short = Counter(node.op_type for node in lowered(pruned).graph.node)
    plain = Counter(node.op_type for node in lowered(pruned, "shorten_scores").graph.node)
    layers = len(RATES)
    assert plain["Mul"] - short["Mul"] == layers
    assert plain["Unsqueeze"] - short["Unsqueeze"] == layers - 1
    assert plain["Expand"] - short["Expand"] == 1


def test_only_the_last_of_two_top_k_is_sorted() -> None:
    nodes = [node for node in lowered(pruned_of(biased_vit())).graph.node if node.op_type == "TopK"]
    attributes = [{a.name: a.i for a in node.attribute} for node in nodes]
    assert [each["sorted"] for each in attributes] == [0, 1] * len(RATES)
    assert [each["largest"] for each in attributes] == [1, 0] * len(RATES)


def test_linear_layers_take_a_matrix_and_an_mlp_stays_one() -> None:
    pruned = pruned_of(biased_vit())
    depth = pruned.vit.spec.depth
    gemm = Counter(node.op_type for node in lowered(pruned).graph.node)
    plain = Counter(node.op_type for node in lowered(pruned, "linear_as_gemm").graph.node)
    assert gemm["Gemm"] - plain["Gemm"] == 4 * depth  # query, projection, and two of the MLP
    assert gemm["Reshape"] - plain["Reshape"] == 3 * 2 * depth
    graph = gs.import_onnx(lowered(pruned))
    for node in (node for node in graph.nodes if node.op == "Gelu"):
        assert [node.inputs[0].inputs[0].op, node.outputs[0].outputs[0].op] == ["Gemm", "Gemm"]
