"""The typed half-precision graph: what is fp32 in it, no node of two dtypes, and the numbers on the runtime."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch

from exporter.evaluation.parity.check_model import check
from exporter.lowering.pipeline import lower
from exporter.targets import ONNXRUNTIME_FP16, OPENVINO, TENSORRT_FP16, Target
from tests.lowering.graphs import BF16, FLOATS, FP16, FP32, kinds_of
from tests.lowering.models import RATES, lowered, pruned_of, star
from tests.vits import make_vit, random_images

BOTH = pytest.mark.parametrize("target", [ONNXRUNTIME_FP16, TENSORRT_FP16], ids=["fused", "primitive"])


@BOTH
def test_no_node_mixes_precisions(target: Target) -> None:
    model = lowered(star(), target)
    kinds = kinds_of(model)
    for node in model.graph.node:
        floats = {kinds[name] for name in (*node.input, *node.output) if kinds.get(name) in FLOATS}
        assert len(floats) <= 1 or node.op_type == "Cast", node.name


@BOTH
def test_scores_and_norms_are_fp32_and_matrices_fp16(target: Target) -> None:
    model = lowered(star(), target)
    kinds = kinds_of(model)
    by_op = {op: [n for n in model.graph.node if n.op_type == op] for op in ("LayerNormalization", "TopK")}
    assert all(kinds[node.output[0]] == FP32 for node in by_op["LayerNormalization"])
    by_score = [node.input[0] for node in by_op["TopK"] if kinds[node.input[0]] != onnx.TensorProto.INT64]
    assert [kinds[score] for score in by_score] == [FP32] * len(RATES)
    assert {kinds[name] for name in kinds if name.startswith("class_row_") and "/" not in name} == {FP32}
    assert {kinds[name] for name in ("images", "logits")} == {FP32}
    matrices = [t for t in model.graph.initializer if len(t.dims) == 2 and min(t.dims) >= 32]
    assert {tensor.data_type for tensor in matrices} == {FP16}


def test_bf16_is_the_same_graph() -> None:
    models = [
        lowered(star(), replace(OPENVINO, passes=(*OPENVINO.passes, f"to_{half}")))
        for half in ("fp16", "bf16")
    ]
    fp16, bf16 = (Counter(node.op_type for node in model.graph.node) for model in models)
    assert fp16 == bf16
    assert BF16 in kinds_of(models[1]).values()
    assert FP16 not in kinds_of(models[1]).values()


@BOTH
@pytest.mark.ort
@pytest.mark.parametrize(
    ("family", "scorer"),
    [(family, "intra") for family in ("vit", "registers", "qk norm", "lvvit", "dinov3")]
    + [(family, "fused") for family in ("vit", "registers")],
)
def test_it_is_the_reference_to_fp16_tolerance(family: str, scorer: str, target: Target) -> None:
    pruned = star(family, scorer)
    model = lowered(pruned, target)
    report = check(pruned, model, random_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks
    assert report.kept_set_overlap is not None
    assert report.kept_set_overlap > 0.9


@pytest.mark.ort
def test_weights_out_of_range_stay_finite() -> None:
    vit = make_vit()
    with torch.no_grad():
        vit.model.get_parameter("head.weight")[0, 0] = 1e6
    model = lower(pruned_of(vit), ONNXRUNTIME_FP16)
    for tensor in model.graph.initializer:
        assert np.isfinite(onnx.numpy_helper.to_array(tensor).astype(np.float64)).all(), tensor.name
