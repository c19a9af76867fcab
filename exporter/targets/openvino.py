"""Files for OpenVINO."""

from dataclasses import replace

from exporter.targets.attention_forms import FUSED
from exporter.targets.record import Target
from exporter.vocabulary import Layout, Precision

__all__ = [
    "OPENVINO",
    "OPENVINO_BF16",
    "OPENVINO_INT8",
    "OPENVINO_INT8_BF16",
]

# OpenVINO decomposes the attention node and fuses it again. Its GatherND is slow, and its top-k needs sorted = 1.
OPENVINO = Target(
    name="openvino-fp32",
    runtime="openvino",
    precision=Precision.FP32,
    layouts=(Layout.PADDED,),
    opset=23,
    passes=(*FUSED, "flat_gathers"),
)

# OpenVINO's own conversion to bf16 at load time would convert the scores too.
OPENVINO_BF16 = replace(
    OPENVINO, name="openvino-bf16", precision=Precision.BF16, passes=(*OPENVINO.passes, "to_bf16")
)

OPENVINO_INT8 = replace(
    OPENVINO,
    name="openvino-int8",
    precision=Precision.INT8,
    # Attention is in parts, for pairs between them; their masks need no row for every query.
    passes=(
        *("split_heads" if name == "spread_masks" else name for name in OPENVINO.passes),
        *("patches_as_linear", "split_gemm"),
    ),
    quantization="qdq",
)

# As "qdq", OpenVINO 2026.4 computes EVA-02 wrongly between bf16 tensors.
OPENVINO_INT8_BF16 = replace(
    OPENVINO_INT8,
    name="openvino-int8-bf16",
    passes=(*OPENVINO.passes, "patches_as_linear", "split_gemm"),
    quantization="qdq-linear",
    passes_after=("to_bf16",),
)
