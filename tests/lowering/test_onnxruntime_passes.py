"""The passes that make ONNX Runtime faster: what each leaves in the graph, and the same numbers."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from exporter.evaluation.parity.check_model import check
from exporter.pruning.pruned_vit import PrunedViT
from exporter.targets import ONNXRUNTIME, Target
from tests.lowering.models import RATES, lowered, run, star
from tests.vits import random_images

OPTIONAL = (
    *("fold_attention_biases", "shorten_scores", "rank_prefix", "select_early", "sort_once"),
    "linear_as_gemm",
)


def without(*passes: str) -> Target:
    return replace(ONNXRUNTIME, passes=tuple(name for name in ONNXRUNTIME.passes if name not in passes))


@pytest.mark.ort
@pytest.mark.parametrize("left_out", OPTIONAL)
def test_each_pass_may_be_left_out(left_out: str) -> None:
    images = random_images(star().vit, 2).numpy()
    whole, less = (run(lowered(star(), without(*names)), images)["logits"] for names in ((), (left_out,)))
    np.testing.assert_allclose(whole, less, atol=1e-4 * whole.std() + 1e-6)


def test_only_the_query_keeps_a_bias_of_its_own() -> None:
    graph = gs.import_onnx(lowered(star(), without("linear_as_gemm")))
    for node in (node for node in graph.nodes if node.op == "Attention"):
        assert [tensor.inputs[0].op for tensor in node.inputs[1:]] == ["MatMul", "MatMul"]


def test_survivors_are_taken_before_their_queries_meet_the_keys() -> None:
    spec, keep = star().vit.spec, star().schedule.keep
    graph = gs.import_onnx(onnx.shape_inference.infer_shapes(lowered(star()), data_prop=True))
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
    graph = gs.import_onnx(lowered(star(scorer="inter"), without("linear_as_gemm")))
    query = graph.tensors()["context_01"].inputs[0].inputs[0]
    product = query.inputs[0].inputs[0]
    assert [query.inputs[0].op, product.inputs[0].op] == ["Add", "MatMul"]
    assert product.inputs[0].inputs[0].inputs[0].op == "GatherND"


def operators_of(*left_out: str, family: str = "vit", pruned: PrunedViT | None = None) -> Counter[str]:
    model = lowered(pruned or star(family), without(*left_out))
    return Counter(node.op_type for node in model.graph.node)


def test_scores_are_products_without_a_further_axis() -> None:
    layers = len(RATES)
    saved = operators_of("shorten_scores", "rank_prefix")
    saved.subtract(operators_of("rank_prefix"))
    assert {name: count for name, count in saved.items() if count} == {
        "Log": layers,
        "Add": layers,  # the product takes the place of the weight's
        "GatherND": layers - 1,
        "Gather": 1 - layers,
        "Unsqueeze": layers - 1,
        "Expand": 1,  # and the shape that it repeats to
        "Concat": 1,
    }


def test_scores_that_a_product_would_lose_stay_logarithms() -> None:
    far = np.geomspace(1e-30, 1.0, star().vit.spec.num_patches)
    inter = np.tile(far, (star().vit.spec.depth, 1))
    pruned = PrunedViT(star().vit, replace(star().schedule, alpha=0.15), inter).eval()
    assert operators_of(pruned=pruned)["Log"] == len(RATES)
    images = random_images(pruned.vit, 16).numpy()
    assert check(pruned, lowered(pruned), images).passed


def test_one_top_k_is_enough_behind_one_prefix_token() -> None:
    assert operators_of()["TopK"] == len(RATES)
    nodes = [node for node in lowered(star("registers")).graph.node if node.op_type == "TopK"]
    attributes = [{a.name: a.i for a in node.attribute} for node in nodes]
    assert [each["sorted"] for each in attributes] == [0, 1] * len(RATES)
    assert [each["largest"] for each in attributes] == [1, 0] * len(RATES)


def test_linear_layers_take_a_matrix_and_an_mlp_stays_one() -> None:
    depth = star().vit.spec.depth
    gemm = Counter(node.op_type for node in lowered(star()).graph.node)
    plain = Counter(node.op_type for node in lowered(star(), without("linear_as_gemm")).graph.node)
    assert gemm["Gemm"] - plain["Gemm"] == 4 * depth  # query, projection, and two of the MLP
    assert gemm["Reshape"] - plain["Reshape"] == 3 * 2 * depth
    graph = gs.import_onnx(lowered(star()))
    for node in (node for node in graph.nodes if node.op == "Gelu"):
        assert [node.inputs[0].inputs[0].op, node.outputs[0].outputs[0].op] == ["Gemm", "Gemm"]
