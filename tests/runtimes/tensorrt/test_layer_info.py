"""The inspector's JSON, in the words and keys that its versions use."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ArtefactError
from exporter.runtimes.tensorrt.layer_info import UNKNOWN, layers_path, read_layers, saved_layers

DYNAMIC = {"Format/Datatype": "N/A due to dynamic shapes"}


def written(described: dict[str, Any], tactic: str = "") -> str:
    """The dtype of a layer's one output."""
    layer = {"Name": "gemm", "LayerType": "gemm", "Outputs": [{"Name": "t", **described}]}
    told = {**layer, "TacticName": tactic} if tactic else layer
    (found,) = read_layers(json.dumps({"Layers": [told], "Bindings": []}))
    return found.writes[0]


@pytest.mark.parametrize(
    ("described", "dtype"),
    [
        ({"Format/Datatype": "Row major linear FP16 format"}, "fp16"),  # 8.6
        ({"Format/Datatype": "Half"}, "fp16"),  # 10
        ({"Format": "Row major linear", "Datatype": "BFloat16"}, "bf16"),  # 11
        ({"Format": "Row major linear", "DataType": "Float"}, "fp32"),  # 11, an input or output of the engine
        ({"Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format"}, "int8"),
        ({"Format": "N/A", "Datatype": "UInt8"}, "uint8"),
        ({"Datatype": "Float8"}, "fp8"),
        ({"Datatype": "FP4"}, "fp4"),
        ({"Datatype": "Int4"}, "int4"),
        (DYNAMIC, UNKNOWN),
        ({}, UNKNOWN),
    ],
    ids=str,
)
def test_a_tensor_s_type(described: dict[str, Any], dtype: str) -> None:
    assert written(described) == dtype


@pytest.mark.parametrize(
    ("tactic", "dtype"),
    {
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64_stage5_warpsize2x2x1_tensor16x8x16": "fp16",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "bf16",
        "sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize128x64x64_stage3": "int8",
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x16": "fp32",
        "ampere_h16816gemm_128x64_ldg8_stages_64x3_tn": "fp16",
        "sm89_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n": "fp8",
        "_gemm_mha_v2_0xbcebb2": UNKNOWN,
    }.items(),
)
def test_the_kernel_s_type_where_the_tensor_s_is_not_told(tactic: str, dtype: str) -> None:
    assert written(DYNAMIC, tactic) == dtype
    assert written({"Datatype": "Half"}, tactic) == "fp16"


def test_the_layers_of_one_profile() -> None:
    """8.6 lists those of all; 10 and 11 list those of the context's profile, without a suffix."""
    names = ["gemm", "softmax", "gemm [profile 1]", "softmax [profile 1]", "mha [profile 2]"]
    everything = json.dumps({"Layers": [{"Name": name} for name in names]})
    assert [[each.name for each in read_layers(everything, profile)] for profile in range(3)] == [
        names[:2],
        names[2:4],
        names[4:],
    ]
    own = json.dumps({"Layers": [{"Name": "gemm"}]})
    assert [len(read_layers(own, profile)) for profile in (0, 1)] == [1, 1]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"Layers": []}', '{"Layers": ["conv1", "conv2"], "Bindings": []}']
)
def test_no_detail(text: str) -> None:
    with pytest.raises(ArtefactError, match="verbosity DETAILED"):
        read_layers(text)


def test_the_layers_that_build_saved(tmp_path: Path) -> None:
    engine = tmp_path / "m.engine"
    profiles = [{"Layers": [{"Name": name}]} for name in ("a", "b")]
    layers_path(engine).write_text(json.dumps({"profiles": profiles}))
    assert [saved_layers(engine, profile)[0].name for profile in (0, 1)] == ["a", "b"]
    for wrong, profile in (
        ({"profiles": profiles}, 2),
        ({"Layers": []}, 0),
    ):  # the second is an earlier version's
        layers_path(engine).write_text(json.dumps(wrong))
        with pytest.raises(ArtefactError, match="the layers of each profile"):
            saved_layers(engine, profile)
