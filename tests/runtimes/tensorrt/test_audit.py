"""What is found in the layers of a profile."""

import json
from typing import Any

from exporter.runtimes.tensorrt.audit import audit, explain_audit
from exporter.runtimes.tensorrt.layer_info import read_layers


def tensor(described: str) -> dict[str, Any]:
    return {"Name": "t", "Location": "Device", "Dimensions": [8, 3, 197, 64], "Format/Datatype": described}


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
    return [f"context_{block:02d}/{part}" for part in ("query_key", "softmax", "weigh_value")]


ENGINE = {
    "Layers": [
        layer("_gemm_mha_v2_myl0_4", attention(1), "Half", "_gemm_mha_v2_0xbcebb2"),
        layer("__myl_ResMul_myl0_5", attention(2)[:1], "Row major linear FP16 format"),
        layer("__myl_MaxrSubExpSumDivMul_myl0_6", attention(2)[1:2], "Float"),
        layer("sm80_xmma_gemm_myl0_7", attention(2)[2:], "Row major linear FP32"),
        layer("TopK", ["keep_02/by_score"], "N/A due to dynamic shapes"),
        layer("__myl_Sum_myl1_4 [profile 1]", attention(1)[:1], "BFloat16"),
    ],
    "Bindings": ["images", "logits"],
}


def test_dtypes_and_fusions() -> None:
    result = audit(read_layers(json.dumps(ENGINE)), blocks=(1, 2, 3))
    assert result.written == {"fp16": 2, "fp32": 2, "unknown": 1}
    assert result.fused_kernels == 1
    assert [each.fused for each in result.blocks] == [1, 0, 0]
    assert result.unfused == (2, 3)


def test_a_fusion_that_one_profile_lost() -> None:
    """Summed over the profiles, the other one's fusion would hide it."""
    first, second = (audit(read_layers(json.dumps(ENGINE), profile), (1, 2)) for profile in (0, 1))
    assert (first.unfused, second.unfused) == ((2,), (1, 2))
    assert second.written == {"bf16": 1}


def test_lines_name_the_block_that_lost_its_fusion() -> None:
    lines = explain_audit(audit(read_layers(json.dumps(ENGINE)), blocks=(1, 2, 3)))
    assert lines[-2].startswith("block 2: attention is not fused: __myl_ResMul_myl0_5, ")
    assert lines[-1] == "block 3: attention is not fused: no layer that names its nodes"


def test_a_kernel_of_half_the_attention_is_no_fusion() -> None:
    half = {"Layers": [layer("_gemm_mha_v2_myl0_4", attention(1)[1:], "Half")]}
    assert audit(read_layers(json.dumps(half)), blocks=(1,)).unfused == (1,)


def test_blocks_without_attention_are_not_asked_for() -> None:
    half = {"Layers": [layer("_gemm_mha_v2_myl0_4", attention(2), "Half")]}
    assert audit(read_layers(json.dumps(half)), blocks=(2,)).unfused == ()
