"""The layers of an engine, and their audit."""

from typing import Any

import pytest

from exporter.core.base.targets import TENSORRT
from exporter.engines.audit import audit, broken_promises
from exporter.engines.layers import UNSTATED, read_layers
from exporter.report.engine_words import explain_audit

DYNAMIC = {"Format/Datatype": "N/A due to dynamic shapes"}


def written(described: dict[str, Any]) -> str:
    """The dtype of a layer's one output."""
    layer = {"Name": "gemm", "Outputs": [{"Name": "t", **described}]}
    (read,) = read_layers({"Layers": [layer], "Bindings": []})
    return read.writes[0].dtype


@pytest.mark.parametrize(
    ("described", "dtype"),
    [
        ({"Format/Datatype": "Row major linear FP16 format"}, "fp16"),
        ({"Format/Datatype": "Half"}, "fp16"),  # 10
        ({"Format": "Row major linear", "Datatype": "BFloat16"}, "bf16"),  # 11
        # 11, an input or output of the engine
        ({"Format": "Row major linear", "DataType": "Float"}, "fp32"),
        (
            {
                "Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format"
            },
            "int8",
        ),
        ({"Format": "N/A", "Datatype": "UInt8"}, "uint8"),
        ({"Datatype": "Float8"}, "fp8"),
        ({"Datatype": "FP4"}, "fp4"),
        ({"Datatype": "Int4"}, "int4"),
        (DYNAMIC, UNSTATED),
        ({}, UNSTATED),
    ],
    ids=str,
)
def test_a_tensor_s_type(described: dict[str, Any], dtype: str) -> None:
    assert written(described) == dtype


def tensor(described: str) -> dict[str, Any]:
    return {
        "Name": "t",
        "Location": "Device",
        "Dimensions": [8, 3, 197, 64],
        "Format/Datatype": described,
    }


def layer(name: str, nodes: list[str], writes: str, tactic: str = "") -> dict[str, Any]:
    return {
        "Name": name,
        "LayerType": "kgen",
        "Inputs": [tensor(writes)],
        "Outputs": [tensor(writes)],
        "TacticName": tactic,
        "StreamId": 0,
        "Metadata": "\x1e".join(f"[ONNX Layer: {node}]" for node in nodes),
    }


def attention(block: int) -> list[str]:
    return [
        f"context_{block:02d}/{part}"
        for part in ("query_key", "softmax", "weigh_value")
    ]


ENGINE = {
    "Layers": [
        layer("_gemm_mha_v2_myl0_4", attention(1), "Half", "_gemm_mha_v2_0xbcebb2"),
        layer("__myl_ResMul_myl0_5", attention(2)[:1], "Row major linear FP16 format"),
        layer("__myl_MaxrSubExpSumDivMul_myl0_6", attention(2)[1:2], "Float"),
        layer("sm80_xmma_gemm_myl0_7", attention(2)[2:], "Row major linear FP32"),
        layer("TopK", ["keep_02/by_score"], "N/A due to dynamic shapes"),
    ],
    "Bindings": ["images", "logits"],
}


def test_dtypes_and_fusions() -> None:
    result = audit(read_layers(ENGINE), blocks=(1, 2, 3))
    assert result.written == {"fp16": 2, "fp32": 2, "unknown": 1}
    assert result.fused_kernels == 1
    assert [block.fused for block in result.blocks] == [1, 0, 0]
    assert result.unfused == (2, 3)


def test_lines_name_the_block_that_lost_its_fusion() -> None:
    lines = explain_audit(audit(read_layers(ENGINE), blocks=(1, 2, 3)))
    assert lines[-2].startswith(
        "block 2: attention is not fused: __myl_ResMul_myl0_5, "
    )
    assert lines[-1] == "block 3: attention is not fused: no layer that names its nodes"


@pytest.mark.parametrize(
    ("nodes", "blocks", "unfused"),
    [(attention(1)[1:], (1,), (1,)), (attention(2), (2,), ())],
    ids=["half of the attention", "a block that is not asked for"],
)
def test_blocks_without_a_kernel_for_all_of_their_attention(
    nodes: list[str], blocks: tuple[int, ...], unfused: tuple[int, ...]
) -> None:
    engine = {"Layers": [layer("_gemm_mha_v2_myl0_4", nodes, "Half")]}
    assert audit(read_layers(engine), blocks).unfused == unfused


def test_activations_of_more_than_twice_the_memory_of_dense_break_a_promise() -> None:
    dense, largest, larger = (
        audit((), (), mebibytes * 2**20) for mebibytes in (10, 20, 21)
    )
    assert not broken_promises(largest, TENSORRT, dense)
    assert broken_promises(larger, TENSORRT, dense) == (
        "activations take 21.0 MiB, more than 2 times the 10.0 MiB of dense",
    )
    of_a_toy = audit((), (), 2**20)
    assert not broken_promises(of_a_toy, TENSORRT, audit((), (), 2**17))
    assert not broken_promises(larger, TENSORRT)
    assert not broken_promises(larger, TENSORRT, audit((), ()))
