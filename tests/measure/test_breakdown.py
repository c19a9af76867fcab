"""Times by class of operator."""

import pytest

from exporter.core.verify.onnxruntime_runner import Kernel
from exporter.measure.batch_sweep import CLASSES, breakdown


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
