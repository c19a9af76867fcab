"""Times by class of operator, of models and of engines."""

import pytest

from exporter.core.verify.onnxruntime_runner import Kernel
from exporter.engines.layers import EngineLayer
from exporter.measure.batch_sweep import (
    CLASSES,
    breakdown,
    engine_breakdown,
    onnx_nodes_of,
)


@pytest.mark.parametrize(
    ("name", "operator", "expected"),
    [
        ("node_MatMul_12", "MatMul", "linear"),
        ("head", "Gemm", "linear"),
        ("conv2d_nchwc", "Conv", "linear"),
        ("context_01/attention", "Attention", "attention"),
        ("context_01/query_key", "MatMul", "attention"),
        ("context_01/turn_key/MatmulTransposeFusion/", "FusedMatMul", "attention"),
        ("context_01/split", "Split", "layout"),
        ("node_layer_norm", "LayerNormalization", "norm"),
        ("BiasGelu_token_10", "BiasGelu", "activation"),
        ("keep_02/by_score", "TopK", "selection"),
        ("tokens_02/join", "Concat", "layout"),
        ("node_transpose", "Transpose", "layout"),
        ("node_add_1", "Add", "other"),
        ("anything", "FromTheFuture", "other"),
    ],
)
def test_by_operator_and_name(name: str, operator: str, expected: str) -> None:
    time_ms = breakdown([Kernel(name, operator, 2.5)])
    assert tuple(time_ms) == CLASSES
    assert {key for key, value in time_ms.items() if value} == {expected}
    assert time_ms[expected] == 2.5


def test_nodes_of_selection_are_that_whatever_their_operator() -> None:
    kernels = [
        Kernel("node_softmax", "Softmax", 1.0),
        Kernel("node_softmax_1", "Softmax", 2.0),
        Kernel("class_row_01/query_keys/MatmulTransposeFusion/", "FusedMatMul", 4.0),
        Kernel("tokens_01/join", "Concat", 8.0),
    ]
    time_ms = breakdown(
        kernels, {"node_softmax", "class_row_01/query_keys", "tokens_01/join"}
    )
    assert (time_ms["selection"], time_ms["attention"]) == (13.0, 2.0)


def layer(name: str, *nodes: str, kind: str = "kgen", tactic: str = "") -> EngineLayer:
    return EngineLayer(name, kind, tactic, frozenset(nodes), (), ())


LAYERS = (
    layer(
        "_gemm_mha_v2_myl0_4",
        "context_01/query_key",
        "context_01/softmax",
        "context_01/weigh_value",
    ),
    layer("__myl_Max_myl0_5", "context_02/softmax"),
    layer("l0", "keep_01/by_score", "keep_01/by_position", kind="TopK"),
    layer(
        "l1", "keep_01/by_score", "fc1", tactic="sm80_xmma_gemm_f16f16_f16f32_f32_tn_n"
    ),
    layer("l2", "fc2", kind="MatrixMultiply"),
    layer("__myl_MeanSubMulMeanAdd", "norm1"),
    layer("l3", "gelu", kind="kgen", tactic="__myl_MulErfMul"),
    layer("l4", kind="Reformat"),
)
SELECTION = {"keep_01/by_score", "keep_01/by_position"}


def test_every_class_and_every_millisecond() -> None:
    times = {each.name: 2.0**at for at, each in enumerate(LAYERS)}
    found = engine_breakdown(
        {**times, "a layer without information": 256.0}, LAYERS, SELECTION
    )
    assert list(found) == list(CLASSES)
    assert found == {
        "linear": 8 + 16,  # l1 fuses a node of the selection with a product
        "attention": 1 + 2,
        "norm": 32,
        "activation": 64,
        "selection": 4,
        "layout": 128,
        "other": 256,
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    {"TopK": "selection", "Shuffle": "layout", "x": "other"}.items(),
)
def test_without_nodes_a_layer_s_words_decide(kind: str, expected: str) -> None:
    assert engine_breakdown({"l": 1.0}, [layer("l", kind=kind)])[expected] == 1.0


def test_the_nodes_of_an_engine() -> None:
    assert onnx_nodes_of(LAYERS) >= SELECTION | {"fc1", "context_02/softmax"}
