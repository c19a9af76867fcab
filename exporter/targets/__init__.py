"""The deployment targets: the record, and a row for each runtime and precision."""

from exporter.targets.record import Target
from exporter.targets.rows import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_INT8,
    ONNXRUNTIME_OPS,
    ONNXRUNTIME_OPSET17,
    OPENVINO,
    OPENVINO_BF16,
    OPENVINO_INT8,
    OPENVINO_INT8_BF16,
    TARGETS,
    TENSORRT,
    TENSORRT_8,
    TENSORRT_ATTENTION_FP16,
    TENSORRT_FP8,
    TENSORRT_FP16,
    TENSORRT_INT8,
    target_named,
)

__all__ = [
    "ONNXRUNTIME",
    "ONNXRUNTIME_FP16",
    "ONNXRUNTIME_INT8",
    "ONNXRUNTIME_OPS",
    "ONNXRUNTIME_OPSET17",
    "OPENVINO",
    "OPENVINO_BF16",
    "OPENVINO_INT8",
    "OPENVINO_INT8_BF16",
    "TARGETS",
    "TENSORRT",
    "TENSORRT_8",
    "TENSORRT_ATTENTION_FP16",
    "TENSORRT_FP8",
    "TENSORRT_FP16",
    "TENSORRT_INT8",
    "Target",
    "target_named",
]
