"""The class of an engine's layer: by its ONNX nodes first, then by its kernel."""

import pytest

from exporter.evaluation.benchmark.breakdown import CLASSES
from exporter.evaluation.benchmark.engine_breakdown import engine_breakdown, nodes_of
from exporter.runtimes.tensorrt.layer_info import Layer


def layer(name: str, *nodes: str, kind: str = "kgen", tactic: str = "") -> Layer:
    return Layer(name, kind, tactic, frozenset(nodes), (), ())


LAYERS = (
    layer("_gemm_mha_v2_myl0_4", "context_01/query_key", "context_01/softmax", "context_01/weigh_value"),
    layer("__myl_Max_myl0_5", "context_02/softmax"),
    layer("l0", "keep_01/by_score", "keep_01/by_position", kind="TopK"),
    layer("l1", "keep_01/by_score", "fc1", tactic="sm80_xmma_gemm_f16f16_f16f32_f32_tn_n"),
    layer("l2", "fc2", kind="MatrixMultiply"),
    layer("__myl_MeanSubMulMeanAdd", "norm1"),
    layer("l3", "gelu", kind="kgen", tactic="__myl_MulErfMul"),
    layer("l4", kind="Reformat"),
)
SELECTION = {"keep_01/by_score", "keep_01/by_position"}


def test_every_class_and_every_millisecond() -> None:
    times = {each.name: 2.0**at for at, each in enumerate(LAYERS)}
    found = engine_breakdown({**times, "a layer without information": 256.0}, LAYERS, SELECTION)
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
    ("kind", "expected"), {"TopK": "selection", "Shuffle": "layout", "x": "other"}.items()
)
def test_without_nodes_a_layer_s_words_decide(kind: str, expected: str) -> None:
    assert engine_breakdown({"l": 1.0}, [layer("l", kind=kind)])[expected] == 1.0


def test_the_nodes_of_an_engine() -> None:
    assert nodes_of(LAYERS) >= SELECTION | {"fc1", "context_02/softmax"}
