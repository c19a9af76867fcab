"""Files for ONNX Runtime."""

from dataclasses import replace

from exporter.targets.attention_forms import FUSED, PRIMITIVE
from exporter.targets.record import Target
from exporter.vocabulary import Layout, Precision

__all__ = [
    "ONNXRUNTIME",
    "ONNXRUNTIME_FP16",
    "ONNXRUNTIME_INT8",
    "ONNXRUNTIME_OPSET17",
]

ONNXRUNTIME = Target(
    name="onnxruntime-fp32",
    runtime="onnxruntime",
    precision=Precision.FP32,
    layouts=(Layout.PACKED, Layout.SHRINKING, Layout.PADDED),
    opset=23,  # the first with an Attention operator
    passes=(*FUSED, "sort_once", "linear_as_gemm"),
)

ONNXRUNTIME_FP16 = replace(
    ONNXRUNTIME, name="onnxruntime-fp16", precision=Precision.FP16, passes=(*ONNXRUNTIME.passes, "to_fp16")
)

ONNXRUNTIME_INT8 = replace(
    ONNXRUNTIME,
    name="onnxruntime-int8",
    precision=Precision.INT8,
    # Linear layers are MatMul, not Gemm, so that query, key and value share the quantized tokens.
    passes=(*FUSED, "sort_once", "patches_as_linear", "split_gemm"),
    quantization="dynamic",
)

# For ONNX Runtime before 1.23, the first that reads opset 23.
ONNXRUNTIME_OPSET17 = replace(
    ONNXRUNTIME, name="onnxruntime-opset17-fp32", opset=18, passes=(*PRIMITIVE, "sort_once", "opset_17")
)
