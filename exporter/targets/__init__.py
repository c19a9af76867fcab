"""The deployment targets: the record, and a row for each runtime and precision."""

from exporter.targets.onnxruntime import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_INT8,
    ONNXRUNTIME_OPSET17,
)
from exporter.targets.openvino import (
    OPENVINO,
    OPENVINO_BF16,
    OPENVINO_INT8,
    OPENVINO_INT8_BF16,
)
from exporter.targets.record import Target
from exporter.targets.registry import TARGETS, target_named, variant_roles
from exporter.targets.tensorrt import (
    TENSORRT,
    TENSORRT_8,
    TENSORRT_FP8,
    TENSORRT_FP16,
    TENSORRT_INT8,
    TENSORRT_PLUGIN_FP16,
)

__all__ = [
    "ONNXRUNTIME",
    "ONNXRUNTIME_FP16",
    "ONNXRUNTIME_INT8",
    "ONNXRUNTIME_OPSET17",
    "OPENVINO",
    "OPENVINO_BF16",
    "OPENVINO_INT8",
    "OPENVINO_INT8_BF16",
    "TARGETS",
    "TENSORRT",
    "TENSORRT_8",
    "TENSORRT_FP8",
    "TENSORRT_FP16",
    "TENSORRT_INT8",
    "TENSORRT_PLUGIN_FP16",
    "Target",
    "target_named",
    "variant_roles",
]
